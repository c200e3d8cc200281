/**
 * A whole cluster in one process on virtual time: managers, agents, NATS, a client, and what goes wrong.
 *
 * Phases: founding (nothing fails until there is a cluster), trouble (faults and the workload), healing (nothing fails any
 * more, and the cluster must come to rest within a bounded virtual time, counted anew whenever there is progress).
 */
import type { Commit } from "../../runtime/store/store.ts";
import type { ManagerLock } from "../../actors/keys/manager-lock.ts";
import { isDemoted } from "../../machines/manager-role.ts";
import { sameBytes } from "../../machines/session-message.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { NodeStatus_State, TaskState } from "../../proto/gen/messages.ts";
import type { SimProcess } from "../../runtime/sim/simulation.ts";
import { Simulation } from "../../runtime/sim/simulation.ts";
import { startFaults } from "./faults.ts";
import {
  checkAcknowledged,
  checkSameState,
  checkSlots,
  checkStatesGrow,
  checkVersionGrows,
  findUnconverged,
  noteAssignments,
  type AssignmentEpochs,
} from "./invariants.ts";
import { SimMachine } from "./machine.ts";
import { bootManager, type RunningManager } from "./manager.ts";
import type { Credentials, TlsMaterial } from "../../actors/agent/agent-ports.ts";
import { bootNode } from "./node.ts";
import type { SimOptions } from "./options.ts";
import { checkEvictions, checkNodes } from "./invariants-global.ts";
import { checkJobs, checkSchedules, type RunCreations } from "./invariants-jobs.ts";
import { findUnbalanced, RebalanceChecks } from "./invariants-rebalance.ts";
import { RebalanceWorkload, type RebalanceWorkloadOptions } from "./workload-rebalance.ts";
import { GlobalWorkload } from "./workload-global.ts";
import { JobWorkload } from "./workload-jobs.ts";
import { findMovingRollout, isOverdue, RolloutChecks } from "./invariants-rollout.ts";
import { RolloutWorkload } from "./workload-rollout.ts";
import { checkNetworks, findLost, findUnallocated } from "./invariants-networks.ts";
import { NetworkWorkload } from "./workload-networks.ts";
import { checkPlacements, findUnsettled } from "./invariants-placement.ts";
import { PlacementWorkload } from "./workload-placement.ts";
import { HistoryWorkload } from "./workload-history.ts";
import { WatchWorkload } from "./workload-watch.ts";
import { CertificateWorkload } from "./workload-certificates.ts";
import { checkHeld, checkSealed, findUnlockedOtherwise } from "./invariants-locks.ts";
import { LockWorkload, unlockWhatIsLocked } from "./workload-locks.ts";
import { checkRoles, findUnsettledRole } from "./invariants-roles.ts";
import { RoleWorkload } from "./workload-roles.ts";
import { checkRoot, findUntrusting, handshakeProblem } from "./invariants-certificates.ts";
import { checkStorage, findStrayVolumes, findUnpublished } from "./invariants-volumes.ts";
import { findUntold } from "./invariants-policies.ts";
import { SimDataplanes } from "./policies.ts";
import { controllerSockets, SimStorage } from "./storage.ts";
import { SimDrivers } from "./drivers.ts";
import { DriverWorkload } from "./workload-drivers.ts";
import { PolicyWorkload } from "./workload-policies.ts";
import { VolumeWorkload } from "./workload-volumes.ts";
import { LogWorkload } from "./workload-logs.ts";
import { Workload } from "./workload.ts";

/** Virtual time in which the first manager must have founded the cluster. */
const foundingMsMax = 60_000;
/** Virtual time without progress after which a healed cluster counts as stuck: what looks again by itself does so each 60 s. */
const stuckMs = 90_000;
/** A healed cluster that still moves after this virtual time never rests. */
const restlessMs = 600_000;
/** Records: so few that managers which start anew load a snapshot. */
const snapshotEvery = 60;
/** How often it is looked whether a healed cluster has come to rest. */
const lookMs = 500;
/** Every so many versions the whole state is hashed: often enough to tell when replicas part, and cheap. */
const hashEvery = 16;
/** After what time a supervisor starts a process anew that has ended itself. */
const supervisorMs = 1_000;
/** How often somebody looks whether a manager that was demoted, or a node that could not join, is to be started again. */
const operatorMs = 2_000;
/** A run takes some thousand steps for each virtual minute; one that takes so many goes round in circles. */
const stepsMax = 200_000;

export interface SimResult {
  /** What was violated, in one sentence; null for a run in which everything held. */
  readonly failure: string | null;
  readonly digest: string;
  readonly trace: string;
  readonly steps: number;
  readonly virtualMs: number;
  /** Last version of the log. */
  readonly versions: number;
  readonly marks: ReadonlyMap<string, number>;
}

export async function runSeed(options: SimOptions, keepTrace: boolean): Promise<SimResult> {
  const world = new World(options, keepTrace);
  return world.run();
}

function addressOf(manager: string): string {
  return `${manager}:2377`;
}

interface SimManager {
  readonly process: SimProcess;
  readonly address: string;
  running: RunningManager | null;
  /** Of the life that it has now. */
  lock: ManagerLock | null;
  /** It has ended because it was demoted. */
  isRetired: boolean;
}

interface SimAgent {
  readonly process: SimProcess;
  readonly machine: SimMachine;
  /** Null in a run without driver plugins. */
  readonly drivers: SimDrivers | null;
}

/** Ids of the tasks that run on a node. */
function runningOn({ drivers, machine }: SimAgent): readonly string[] {
  return drivers === null ? machine.running() : [...machine.running(), ...drivers.running()];
}

class World {
  readonly #options: SimOptions;
  readonly #simulation: Simulation;
  readonly #managers: SimManager[] = [];
  readonly #agents: SimAgent[] = [];
  readonly #epochs: AssignmentEpochs = new Map();
  readonly #hashes = new Map<number, string>();
  readonly #habits;
  #workload: Workload | null = null;
  #globals: GlobalWorkload | null = null;
  #networks: NetworkWorkload | null = null;
  #jobs: JobWorkload | null = null;
  #rollouts: RolloutWorkload | null = null;
  #rebalance: RebalanceWorkload | null = null;
  #placement: PlacementWorkload | null = null;
  readonly #watches: WatchWorkload;
  readonly #lookingBack: HistoryWorkload;
  #logs: LogWorkload | null = null;
  #certificates: CertificateWorkload | null = null;
  #locks: LockWorkload | null = null;
  #roles: RoleWorkload | null = null;
  #volumes: VolumeWorkload | null = null;
  #policies: PolicyWorkload | null = null;
  /** Null in a run without network policy. */
  readonly #dataplanes: SimDataplanes | null;
  #driven: DriverWorkload | null = null;
  #areDriversHealed = false;
  #isHealed = false;
  /** Null in a run without cluster volumes. */
  readonly #storage: SimStorage | null;
  /** Every unlock key that the operator was given, the newest first. */
  readonly #unlockKeys: Uint8Array[] = [];
  readonly #runs: RunCreations = new Map();
  #failure: string | null = null;
  #newest = 0;
  #hasJoined = false;

  constructor(options: SimOptions, keepTrace: boolean) {
    this.#options = options;
    this.#habits = { ...options.tasks };
    this.#simulation = new Simulation({ seed: options.seed, keepTrace });
    this.#dataplanes =
      options.policyOperations === 0 ? null : new SimDataplanes(this.#simulation.trace, (claim) => this.#fail(claim));
    this.#storage =
      options.volumeOperations === 0
        ? null
        : new SimStorage(this.#simulation.ports("storage"), this.#simulation.trace, options.storage);
    this.#watches = new WatchWorkload({
      ports: this.#simulation.ports("watcher"),
      trace: this.#simulation.trace,
      addresses: Array.from({ length: options.managers }, (_, at) => addressOf(`m${at + 1}`)),
      organization: () => this.#managers[0]?.running?.organization() ?? "",
      watchers: options.watchers,
      withinMs: options.faultsMs,
      onViolation: (claim) => this.#fail(claim),
    });
    this.#lookingBack = new HistoryWorkload({
      ports: this.#simulation.ports("history"),
      trace: this.#simulation.trace,
      addresses: Array.from({ length: options.managers }, (_, at) => addressOf(`m${at + 1}`)),
      organization: () => this.#managers[0]?.running?.organization() ?? "",
      looks: options.looksBack,
      withinMs: options.faultsMs,
      onViolation: (claim) => this.#fail(claim),
    });
    this.#simulation.nats.onTailLost = (kept) => {
      this.#workload?.excuseAfter(kept);
      this.#watches.excuse();
      this.#lookingBack.excuse();
    };
  }

  async run(): Promise<SimResult> {
    const { clock, trace, nats } = this.#simulation;
    const onRejection = (reason: unknown) =>
      this.#fail(`P1: a rejected promise that nobody handles: ${sentence(reason)}`);
    process.on("unhandledRejection", onRejection);
    try {
      await this.#found();
      if (this.#failure === null) await this.#trouble();
    } catch (error) {
      this.#fail(`P2: the simulation threw: ${sentence(error)}`);
    } finally {
      for (const { process: each } of [...this.#managers, ...this.#agents]) each.crash();
      process.off("unhandledRejection", onRejection);
    }
    return {
      failure: this.#failure,
      digest: trace.digest(),
      trace: trace.text(),
      steps: clock.steps,
      virtualMs: Math.round(clock.elapsed),
      versions: nats.last,
      marks: trace.marks,
    };
  }

  async #found(): Promise<void> {
    for (let number = 1; number <= this.#options.managers; number += 1) this.#addManager(`m${number}`);
    for (const { process: each } of this.#managers) each.start();
    await this.#runUntil(
      () => this.#managers.every(({ running }) => running?.joinToken() !== null && running?.isServing() === true),
      foundingMsMax,
    );
    if (this.#failure === null && !this.#managers.every(({ running }) => running?.isServing() === true)) {
      this.#fail(`L1: no cluster was founded within ${foundingMsMax} ms`);
    }
  }

  async #trouble(): Promise<void> {
    const { clock, trace } = this.#simulation;
    const { agents, faultsMs, globalOperations, jobOperations, operations, rolloutOperations } = this.#options;
    for (let number = 1; number <= agents; number += 1) this.#addAgent(`a${number}`);
    for (const { process: each } of this.#agents) each.start();
    const client = this.#simulation.ports("client");
    const organization = this.#managers[0]?.running?.organization() ?? "";
    const access = {
      ports: client,
      trace,
      addresses: this.#managers.map(({ address }) => address),
      identity: { nodeId: "client", role: "swarm-manager", organization },
      withinMs: faultsMs,
    } as const;
    this.#workload = new Workload({ ...access, operations });
    this.#workload.start();
    this.#unlock();
    this.#globals = new GlobalWorkload({ ...access, operations: globalOperations, spared: "a1" });
    this.#globals.start();
    this.#jobs = new JobWorkload({ ...access, operations: jobOperations });
    this.#jobs.start();
    this.#networks = new NetworkWorkload({ ...access, operations: this.#options.networkOperations });
    this.#networks.start();
    this.#rollouts = new RolloutWorkload({ ...access, operations: rolloutOperations });
    this.#rollouts.start();
    this.#placement = new PlacementWorkload({ ...access, operations: this.#options.placementOperations });
    this.#placement.start();
    this.#watches.start();
    this.#lookingBack.start();
    this.#logs = new LogWorkload({
      ...access,
      operations: this.#options.logOperations,
      onWrong: (claim) => this.#fail(claim),
    });
    this.#logs.start();
    this.#certificates = new CertificateWorkload({ ...access, operations: this.#options.certificateOperations });
    this.#certificates.start();
    this.#locks = new LockWorkload({ ...access, operations: this.#options.lockOperations });
    this.#locks.start();
    this.#roles = new RoleWorkload({ ...access, operations: this.#options.roleOperations });
    this.#roles.start();
    this.#startPromoted();
    this.#volumes = new VolumeWorkload({ ...access, operations: this.#options.volumeOperations });
    this.#volumes.start();
    this.#policies = new PolicyWorkload({ ...access, operations: this.#options.policyOperations });
    this.#policies.start();
    this.#driven = new DriverWorkload({ ...access, operations: this.#options.driverOperations });
    this.#driven.start();
    this.#rebalanceNodes(access);
    const faults = startFaults(this.#simulation, this.#options, {
      managers: this.#managers.map(({ process: each }) => each),
      agents: this.#agents.map(({ process: each }) => each),
      mayLoseTail: () => this.#mayLoseTail(),
      losePower: (agent) => {
        const lost = this.#agents.find(({ process: each }) => each === agent);
        lost?.machine.losePower();
        lost?.drivers?.machine.losePower();
        this.#storage?.storage.forgetMounts(agent.name);
      },
    });
    await this.#runUntil(() => false, faultsMs);
    if (this.#failure !== null) return;
    faults.heal();
    this.#storage?.heal();
    this.#areDriversHealed = true;
    for (const { drivers } of this.#agents) drivers?.heal();
    // What was acknowledged and lost is told again only by those who start anew: an operator would restart everything.
    if ((this.#simulation.trace.marks.get("log.tail.lost") ?? 0) > 0) {
      for (const { process: each } of [...this.#managers, ...this.#agents]) each.restart();
    }
    if (this.#options.endsWithAllManagers) this.#roles.restore();
    this.#isHealed = true;
    if (this.#managers.some(({ isRetired }) => isRetired)) this.#tellAgentsOfManagers();
    this.#habits.failure = 0;
    this.#habits.refusal = 0;
    await this.#rest(clock.elapsed);
  }

  /** Rebalancing, and the nodes for which there is something to do. */
  #rebalanceNodes(access: Omit<RebalanceWorkloadOptions, "operations">): void {
    const { lateAgents, rebalanceOperations: operations, faultsMs } = this.#options;
    if (operations === 0) return;
    this.#rebalance = new RebalanceWorkload({ ...access, operations });
    this.#rebalance.start();
    const random = this.#simulation.random.fork("late");
    for (let number = 1; number <= lateAgents; number += 1) {
      const join = (): void => {
        // Whoever adds a node asks a manager for the token first.
        if (this.#managers.every(({ running }) => running?.joinToken() == null)) {
          this.#simulation.clock.schedule(join, lookMs, null);
          return;
        }
        this.#addAgent(`late${number}`);
        this.#agents.at(-1)?.process.start();
        this.#simulation.trace.mark("agent.joined.late");
      };
      this.#simulation.clock.schedule(join, random.between(faultsMs / 4, faultsMs), null);
    }
  }

  /** Once all have joined, and that is on the disk. */
  #mayLoseTail(): boolean {
    const wanted = this.#options.managers + this.#options.agents;
    const isJoined = this.#managers.some(({ running }) => running !== null && running.store.count("node") === wanted);
    if (isJoined && !this.#hasJoined) this.#simulation.nats.sync();
    const before = this.#hasJoined;
    this.#hasJoined ||= isJoined;
    return before;
  }

  /** Liveness: the healed cluster comes to rest. */
  async #rest(healedAt: number): Promise<void> {
    const { clock } = this.#simulation;
    let progressAt = clock.elapsed;
    let version = this.#newest;
    let restingSince: number | null = null;
    for (;;) {
      await this.#runUntil(() => false, lookMs);
      if (this.#failure !== null) return;
      if (this.#newest > version) {
        version = this.#newest;
        progressAt = clock.elapsed;
      }
      const why = this.#whyRestless();
      // Rest for a while: a cluster that passes through a good state on its way to a bad one does not rest.
      if (why !== null) restingSince = null;
      else restingSince ??= clock.elapsed;
      if (restingSince !== null && clock.elapsed - restingSince >= 10 * lookMs) break;
      if (why !== null && isOverdue(why)) this.#fail(why);
      if (why !== null && clock.elapsed - progressAt > stuckMs)
        this.#fail(`L2: stuck since ${Math.round(progressAt)} ms: ${why}`);
      else if (why !== null && clock.elapsed - healedAt > restlessMs)
        this.#fail(`L3: no rest ${restlessMs} ms after the last fault: ${why}`);
    }
    const { nats } = this.#simulation;
    const stored = Array.from({ length: nats.last - nats.first + 1 }, (_, at) => nats.record(nats.first + at));
    this.#demand(
      "nats",
      checkSealed(
        stored.filter((record) => record !== null),
        [...nats.blobs.values()],
      ),
    );
    const [{ running: some } = { running: null }] = this.#managers;
    // What the storage was asked for by a history that is lost stays there, and nobody knows of it.
    if (this.#storage !== null && some !== null && !this.#isTailLost) {
      const nameOf = (nodeId: string) => some.store.get("node", nodeId)?.description?.hostname;
      this.#demand("storage", findStrayVolumes(some.store, this.#storage.storage, nameOf));
    }
    for (const { running, process: each } of this.#managers) {
      if (running === null) continue;
      this.#demand(each.name, checkSameState(running.store.version, running.store.stateHash(), this.#hashes));
      this.#demand(each.name, checkAcknowledged(running.store, this.#workload?.writes ?? []));
    }
  }

  #whyRestless(): string | null {
    if (this.#workload?.isDone === false || this.#globals?.isDone === false) return "the client is not done";
    if (this.#jobs?.isDone === false) return "the client of jobs is not done";
    if (this.#networks?.isDone === false) return "the client of networks is not done";
    if (this.#rollouts?.isDone === false) return "the client of rollouts is not done";
    if (this.#placement?.isDone === false) return "the client of choosy services is not done";
    if (this.#rebalance?.isDone === false) return "the client of rebalancing is not done";
    if (this.#logs?.isDone === false) return `O3: a subscription to output does not end: ${this.#logs.whyOpen()}`;
    if (this.#volumes?.isDone === false) return "the client of volumes is not done";
    if (this.#policies?.isDone === false) return "the client of network policy is not done";
    if (this.#driven?.isDone === false) return "the client of driver plugins is not done";
    if (this.#locks?.isDone === false) return "the operator of locks is not done";
    if (this.#certificates?.isDone === false) return "the operator of certificates is not done";
    if (this.#roles?.isDone === false) return "the operator of roles is not done";
    const behind = this.#watches.whyBehind();
    if (behind !== null) return behind;
    const { nats } = this.#simulation;
    const wanted = this.#managers.filter(({ isRetired }) => !isRetired);
    const ended = new Map(this.#managers.map(({ isRetired, process: { name } }) => [name, isRetired]));
    const otherwise = findUnlockedOtherwise(wanted.map(({ running }) => running));
    if (otherwise !== null) return otherwise;
    for (const { running, process: each } of wanted) {
      if (running === null) return `${each.name} does not run`;
      const { store } = running;
      if (store.version !== nats.last) return `${each.name} is at ${store.version} of ${nats.last}`;
      const why = findUnconverged(
        store,
        (nodeId) => store.get("node", nodeId)?.status?.state === NodeStatus_State.READY,
      );
      if (why !== null) return `${each.name}: ${why}`;
      const unsettledRole = findUnsettledRole(store, ended);
      if (unsettledRole !== null) return `${each.name}: ${unsettledRole}`;
      const untrusting = findUntrusting(store);
      if (untrusting !== null) return `${each.name}: ${untrusting}`;
      const unsettled = findUnsettled(store);
      if (unsettled !== null) return `${each.name}: ${unsettled}`;
      const unallocated = findUnallocated(store) ?? (running.allocates() ? findLost(store, running.held) : null);
      if (unallocated !== null) return `${each.name}: ${unallocated}`;
      const unpublished = this.#storage === null ? null : findUnpublished(store);
      if (unpublished !== null) return `${each.name}: ${unpublished}`;
      const untold = this.#dataplanes === null ? null : findUntold(store, this.#dataplanes);
      if (untold !== null) return `${each.name}: ${untold}`;
      const moving = findMovingRollout(store, this.#simulation.clock.now());
      if (moving !== null) return `${each.name}: ${moving}`;
      const unbalanced = this.#rebalance === null ? null : findUnbalanced(store, this.#simulation.clock.now());
      if (unbalanced !== null) return `${each.name}: ${unbalanced}`;
      for (const id of this.#workload?.removed ?? [])
        if (store.get("service", id) !== undefined) return `${each.name}: service ${id} was removed and is still there`;
      for (const task of store.all("task")) {
        const agent = this.#agents.find(
          ({ machine: { name } }) => store.get("node", task.nodeId)?.description?.hostname === name,
        );
        const saysRunning = task.desiredState === TaskState.RUNNING && task.status?.state === TaskState.RUNNING;
        if (saysRunning && (agent === undefined || !runningOn(agent).includes(task.id)))
          return `task ${task.id} is said to run on ${agent?.machine.name ?? task.nodeId} and does not`;
      }
      for (const agent of this.#agents) {
        const { machine } = agent;
        for (const id of runningOn(agent))
          if (store.get("task", id) === undefined) return `task ${id} runs on ${machine.name} and is in no replica`;
      }
    }
    return null;
  }

  #addManager(name: string): void {
    const address = addressOf(name);
    const manager: SimManager = { process: null as never, address, running: null, lock: null, isRetired: false };
    const boot: Parameters<Simulation["process"]>[1] = (ports) => {
      const { clock, trace } = this.#simulation;
      manager.running = null;
      manager.isRetired = false;
      bootManager(ports, {
        address,
        trace,
        peers: this.#managers.map((each) => each.address),
        csi: this.#storage === null ? null : controllerSockets(ports),
        snapshotEvery,
        onLock: (lock) => (manager.lock = lock),
        onRunning: (running) => {
          manager.running = running;
          this.#observe(name, running.store);
        },
        onBroken: (error) => ports.fail("a broken log", error),
        onDemoted: () => {
          if (!ports.clock.alive) return;
          trace.mark("manager.demoted");
          manager.process.crash();
          manager.isRetired = true;
          manager.running = null;
          manager.lock = null;
          if (this.#isHealed) this.#tellAgentsOfManagers();
        },
        onGivenUp: (error) => {
          if (!ports.clock.alive) return;
          trace.write(name, `gives up: ${sentence(error)}`);
          trace.mark("manager.given.up");
          manager.process.crash();
          clock.schedule(() => manager.process.start(), supervisorMs, null);
        },
      });
    };
    Object.assign(manager, { process: this.#simulation.process(name, boot, this.#processOptions(name)) });
    this.#managers.push(manager);
  }

  /** Who was away while every manager that it knew was demoted finds none by itself: an operator tells it of another. */
  #tellAgentsOfManagers(): void {
    for (const { process: each } of this.#agents)
      this.#simulation.clock.schedule(() => each.restart(), operatorMs, null);
  }

  /** Whoever runs a manager that was promoted again starts it. */
  #startPromoted(): void {
    const { clock, trace } = this.#simulation;
    const look = (): void => {
      for (const { isRetired, process: each } of this.#managers) {
        const isWanted = this.#managers.some(({ running }) => {
          const node = running?.store.byName("node", each.name);
          return node !== undefined && !isDemoted(node);
        });
        if (!isRetired || !isWanted) continue;
        trace.mark("manager.started.again");
        each.start();
      }
      clock.schedule(look, operatorMs, null);
    };
    clock.schedule(look, operatorMs, null);
  }

  #addAgent(name: string): void {
    const { clock, random, trace } = this.#simulation;
    const machine = new SimMachine(name, {
      clock,
      random: random.fork(`machine.${name}`),
      trace,
      habits: this.#habits,
    });
    this.#storage?.serveNode(name);
    const drivers =
      this.#options.driverOperations === 0
        ? null
        : new SimDrivers(clock, random.fork(`drivers.${name}`), trace, this.#options.drivers);
    if (this.#areDriversHealed) drivers?.heal();
    let at = random.pick(this.#managers.filter(({ isRetired }) => !isRetired));
    let token = "";
    const each = this.#simulation.process(
      name,
      (ports) => {
        // Until it has joined, each start is somebody's who asked for the token.
        token = this.#joinToken() || token;
        if (at.isRetired) at = this.#managers.find(({ isRetired }) => !isRetired) ?? at;
        bootNode(ports, {
          machine,
          drivers,
          trace,
          join: { address: at.address, token },
          onNotJoined: () => {
            if (!ports.clock.alive) return;
            trace.mark("agent.joined.again");
            each.crash();
            clock.schedule(() => each.start(), operatorMs, null);
          },
          hasOverlay: this.#options.networkOperations > 0,
          storage: this.#storage,
          dataplane: this.#dataplanes?.boot(name) ?? null,
          onWrong: (claim) => this.#fail(claim),
          handshake: (address, ...shown) => this.#handshake(name, address, ...shown),
        });
      },
      this.#processOptions(name),
    );
    this.#agents.push({ process: each, machine, drivers });
  }

  /** S22 */
  #handshake(name: string, address: string, ...shown: readonly [Credentials, TlsMaterial]): string | null {
    const server = this.#managers.find((manager) => manager.address === address);
    const problem = handshakeProblem(server?.running?.certificate() ?? null, ...shown);
    // After a lost tail the roots that somebody was told of may never have been.
    const isTailLost = (this.#simulation.trace.marks.get("log.tail.lost") ?? 0) > 0;
    if (problem !== null && !isTailLost) this.#fail(`S22: ${name} and ${address}: ${problem}`);
    return problem;
  }

  /** Asks at each machine where a manager serves: nobody knows a key that he was not given. */
  #askForUnlockKeys(): void {
    for (const { process: each, running } of this.#managers) {
      if (running === null || !each.isRunning || each.isPaused || !running.isServing()) continue;
      const key = running.unlockKey();
      const isKnown = key.length === 0 || this.#unlockKeys.some((known) => sameBytes(known, key));
      if (!isKnown) this.#unlockKeys.unshift(key);
    }
  }

  /** Whoever is locked is unlocked, sooner or later, as long as the simulation runs. */
  #unlock(): void {
    const { clock, random, trace } = this.#simulation;
    unlockWhatIsLocked({
      every: (ms, work) => {
        const next = (): void => {
          work();
          clock.schedule(next, ms, null);
        };
        clock.schedule(next, ms, null);
      },
      locks: () =>
        this.#managers.flatMap(({ process: each, lock }) =>
          lock !== null && each.isRunning && !each.isPaused ? [lock] : [],
        ),
      keys: () => this.#unlockKeys,
      ask: () => this.#askForUnlockKeys(),
      random: random.fork("unlock"),
      mark: (name) => trace.mark(name),
      onWrong: (claim) => this.#fail(claim),
    });
  }

  #joinToken(): string {
    for (const { running } of this.#managers) {
      const token = running?.joinToken() ?? null;
      if (token !== null) return token;
    }
    return "";
  }

  #processOptions(name: string) {
    const random = this.#simulation.random.fork(`clock.${name}`);
    const { skewMsMax, driftPpmMax } = this.#options;
    return {
      skewMs: Math.round(random.between(-skewMsMax, skewMsMax)),
      driftPpm: random.between(-driftPpmMax, driftPpmMax),
      onFail: (reason: string, error: unknown) => this.#processFailed(name, reason, error),
    };
  }

  /** A process that ends itself has found a broken invariant. Only a log that lost what it had acknowledged excuses that. */
  #processFailed(name: string, reason: string, error: unknown): void {
    const { clock, trace } = this.#simulation;
    const tailLost = (trace.marks.get("log.tail.lost") ?? 0) > 0;
    if (!tailLost) {
      this.#fail(`P3: ${name} ended itself in ${reason}: ${sentence(error)}`);
      return;
    }
    trace.mark("replica.stopped.at.break");
    const manager = this.#managers.find(({ process: each }) => each.name === name);
    if (manager !== undefined) manager.running = null;
    clock.schedule(() => manager?.process.start(), supervisorMs, null);
  }

  /** Looks at every commit of a replica. */
  #observe(name: string, replica: Replica): void {
    let version = 0;
    const rollouts = new RolloutChecks();
    const isExact = this.#options.skewMsMax === 0 && this.#options.driftPpmMax === 0;
    const rebalance = new RebalanceChecks(isExact);
    replica.watch((commit: Commit & { readonly epoch?: number }) => {
      this.#newest = Math.max(this.#newest, commit.version);
      this.#demand(name, checkVersionGrows(commit, version));
      version = commit.version;
      // A loaded snapshot is no transaction: what led to it was seen by another replica, or never.
      if (commit.epoch === undefined) return;
      this.#watches.observe(commit);
      this.#lookingBack.observe(commit, replica);
      noteAssignments(commit, commit.epoch, this.#epochs);
      this.#demand(name, checkSlots(commit, replica, this.#epochs));
      this.#demand(name, checkNodes(commit, replica, this.#epochs));
      this.#demand(name, checkEvictions(commit, replica));
      this.#demand(name, checkStatesGrow(commit));
      this.#demand(name, checkNetworks(commit, replica));
      const [before, record] = [commit.version - 1, commit.version].map((each) => this.#simulation.nats.record(each));
      if (before != null && record != null) this.#demand(name, checkHeld(record, before, commit, replica));
      this.#demand(name, checkPlacements(commit, replica));
      this.#demand(name, checkRoles(commit, replica));
      this.#demand(
        name,
        checkRoot(commit, replica, (mark) => this.#simulation.trace.mark(mark)),
      );
      // After a lost tail nodes run what nobody knows of any more.
      const isTailLost = (this.#simulation.trace.marks.get("log.tail.lost") ?? 0) > 0;
      if (!isTailLost) this.#demand(name, rollouts.check(commit, replica));
      if (!isTailLost && this.#storage !== null) this.#demand(name, checkStorage(this.#storage.storage));
      for (const { drivers } of this.#agents) this.#demand(name, drivers?.flaw() ?? null);
      this.#demand(name, checkJobs(commit, replica));
      if ((this.#simulation.trace.marks.get("log.tail.lost") ?? 0) === 0)
        this.#demand(name, rebalance.check(commit, replica));
      // After a lost tail due times are dealt with anew.
      if ((this.#simulation.trace.marks.get("log.tail.lost") ?? 0) === 0)
        this.#demand(
          name,
          checkSchedules(commit, this.#runs, (mark) => this.#simulation.trace.mark(mark)),
        );
      if (version % hashEvery !== 0) return;
      // After a lost tail two histories share version numbers.
      if ((this.#simulation.trace.marks.get("log.tail.lost") ?? 0) > 0) return;
      this.#demand(name, checkAcknowledged(replica, this.#workload?.writes ?? []));
      // Hashed once the listeners are done, as everything else that reads the replica does.
      this.#demand(name, checkSameState(version, replica.stateHash(), this.#hashes));
    });
  }

  get #isTailLost(): boolean {
    return (this.#simulation.trace.marks.get("log.tail.lost") ?? 0) > 0;
  }

  #demand(name: string, claim: string | null): void {
    if (claim !== null) this.#fail(`${claim} (on ${name})`);
  }

  #fail(reason: string): void {
    if (this.#failure !== null) return;
    this.#failure = reason;
    this.#simulation.trace.write("world", `FAILED ${reason}`);
    this.#simulation.clock.stop();
  }

  async #runUntil(until: () => boolean, ms: number): Promise<void> {
    const { clock } = this.#simulation;
    if (this.#failure !== null) return;
    const end = await clock.run({ untilMs: clock.now() + ms, until, maxSteps: stepsMax - clock.steps });
    if (end === "steps") this.#fail(`L4: ${stepsMax} steps were not enough`);
  }
}

function sentence(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const [, at = ""] = (error.stack ?? "").split("\n");
  return `${error.name}: ${error.message} ${at.trim()}`;
}
