/** Checks every commit of every replica against all invariants that hold during faults. */
import { observedState } from "../machines/task.ts";
import { TaskState } from "../proto/gen/messages.ts";
import type { Replica } from "../runtime/store/replica.ts";
import type { Commit } from "../runtime/store/store.ts";
import { areExact } from "./clocks.ts";
import { RootChecks } from "./invariants/certificates.ts";
import { checkContention } from "./invariants/contention.ts";
import { checkEvictions, checkNodes } from "./invariants/global.ts";
import { checkFormat } from "./invariants/format.ts";
import { checkProven } from "./invariants/health.ts";
import { checkLeaders } from "./invariants/leader.ts";
import { checkAssigned, checkDeclared } from "./invariants/nodes.ts";
import { RolloutEnds } from "./invariants/rollout-ends.ts";
import type { SimManagers } from "./managers/managers.ts";
import { checkJobs, checkSchedules, type RunCreations } from "./invariants/jobs.ts";
import { checkHeld } from "./invariants/locks.ts";
import { checkNetworks } from "./invariants/networks.ts";
import { checkPlacements } from "./invariants/placement.ts";
import { RebalanceChecks } from "./invariants/rebalance.ts";
import { checkRoles } from "./invariants/roles.ts";
import { RolloutChecks } from "./invariants/rollout.ts";
import { checkStorage } from "./invariants/volumes.ts";
import {
  checkAcknowledged,
  checkSameState,
  checkSlots,
  checkStatesGrow,
  checkVersionGrows,
} from "./invariants/always.ts";
import type { SimNodes } from "./nodes/nodes.ts";
import type { Scene } from "./scene.ts";
import type { SimStorage } from "./nodes/storage.ts";
import type { Workloads } from "./workloads/workloads.ts";

/** Interval, in versions, between hashes of the whole state: frequent enough to locate a divergence, and cheap. */
const hashEvery = 16;

interface CheckedParts {
  readonly nodes: SimNodes;
  readonly workloads: Workloads;
  readonly managers: SimManagers;
  readonly storage: SimStorage | null;
}

export class CommitChecks {
  readonly #scene: Scene;
  readonly #parts: CheckedParts;
  readonly #hashes = new Map<number, string>();
  readonly #runs: RunCreations = new Map();
  readonly #roots = new RootChecks();
  /** Ids of tasks that an agent has reported as STARTING or later. */
  readonly #started = new Set<string>();
  #newest = 0;

  constructor(scene: Scene, parts: CheckedParts) {
    this.#scene = scene;
    this.#parts = parts;
  }

  /** The newest version of any replica. */
  get newest(): number {
    return this.#newest;
  }

  /** Whether the log says that the task was started. */
  isToldStarted(taskId: string): boolean {
    return this.#started.has(taskId);
  }

  /** The log has lost the records after this version; other records reuse their numbers. */
  forgetAfter(version: number): void {
    for (const known of this.#hashes.keys()) if (known > version) this.#hashes.delete(known);
  }

  /** Checks that hold for a replica at every version, made now and then while it changes, and at rest. */
  checkWhole(name: string, replica: Replica): void {
    this.#scene.demand(name, checkAcknowledged(replica, this.#parts.workloads.writes));
    // Hashed after the listeners, like everything else that reads the replica.
    this.#scene.demand(name, checkSameState(replica.version, replica.stateHash(), this.#hashes));
  }

  /** Follows one life of a manager. */
  follow(name: string, replica: Replica): void {
    let version = 0;
    const rollouts = new RolloutChecks();
    const ends = new RolloutEnds(areExact(this.#scene));
    const rebalance = new RebalanceChecks(areExact(this.#scene));
    replica.watch((commit: Commit & { readonly epoch?: number }) => {
      this.#newest = Math.max(this.#newest, commit.version);
      this.#scene.demand(name, checkVersionGrows(commit, version));
      version = commit.version;
      // A loaded snapshot is not a transaction: another replica saw the transactions behind it, or none did.
      if (commit.epoch === undefined) return;
      this.#check(name, commit, replica);
      if (this.#scene.isTailLost) return;
      this.#scene.demand(name, ends.check(commit, commit.epoch, replica));
      this.#checkHistory(name, commit, replica, rollouts, rebalance);
      if (version % hashEvery === 0) this.checkWhole(name, replica);
    });
  }

  #check(name: string, commit: Commit, replica: Replica): void {
    const { options, simulation } = this.#scene;
    const { nats, trace } = simulation;
    const { rates } = options;
    const demand = (claim: string | null): void => this.#scene.demand(name, claim);
    this.#parts.workloads.observe(commit, replica);
    for (const change of commit.changes)
      if (change.table === "task" && observedState(change.object) >= TaskState.STARTING)
        this.#started.add(change.object.id);
    demand(checkSlots(commit, replica));
    demand(checkNodes(commit, replica));
    demand(checkEvictions(commit, replica));
    demand(checkStatesGrow(commit));
    demand(checkAssigned(commit, replica));
    demand(checkDeclared(commit, replica));
    // A process that was suspended and resumed may believe for a moment that it leads, without effect.
    const isPausing = rates.pause + rates["leader.pause"] > 0 || trace.marks.has("trial.leader.paused");
    if (!isPausing) demand(checkLeaders(this.#parts.managers));
    demand(checkNetworks(commit, replica));
    demand(checkContention(commit, replica));
    const [before, record] = [commit.version - 1, commit.version].map((each) => nats.record(each));
    if (before != null && record != null) demand(checkHeld(record, before, commit, replica));
    demand(checkPlacements(commit, replica));
    demand(checkRoles(commit, replica));
    demand(checkFormat(commit, replica, (mark) => trace.mark(mark)));
    demand(this.#roots.check(commit, replica, (mark) => trace.mark(mark)));
    demand(checkJobs(commit, replica));
    for (const { drivers } of this.#parts.nodes.all) demand(drivers?.flaw() ?? null);
    demand(checkProven(commit, this.#parts.nodes.drivers, (mark) => trace.mark(mark)));
  }

  /** Checks that hold while there is one history: after a lost tail, nodes run unknown tasks, and much is done again. */
  #checkHistory(
    name: string,
    commit: Commit,
    replica: Replica,
    rollouts: RolloutChecks,
    rebalance: RebalanceChecks,
  ): void {
    const { storage } = this.#parts;
    if (storage !== null) this.#scene.demand(name, checkStorage(storage.storage));
    // Windows of rollouts, moves and runs use the log's times: a clock that jumps ends them early.
    if (this.#scene.options.rates["clock.jump"] > 0) return;
    this.#scene.demand(name, rollouts.check(commit, replica));
    this.#scene.demand(name, rebalance.check(commit, replica));
    this.#scene.demand(
      name,
      checkSchedules(commit, this.#runs, (mark) => this.#scene.simulation.trace.mark(mark)),
    );
  }
}
