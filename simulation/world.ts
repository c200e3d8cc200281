/**
 * A whole cluster in one process on virtual time: managers, nodes, NATS, clients, and faults.
 *
 * Phases: founding (no faults until there is a cluster), trouble (faults and workloads), healing (no more faults: the cluster
 * must come to rest), trials (single faults in a cluster at rest).
 *
 * L1: a cluster is founded in the absence of faults.
 */
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import { startAttacker } from "./faults/attacker.ts";
import { CommitChecks } from "./commit-checks.ts";
import type { Strike } from "./faults/fault.ts";
import { startFaults, type Faults } from "./faults/faults.ts";
import { serveSimJson } from "./managers/json-wire.ts";
import { SimManagers } from "./managers/managers.ts";
import { SimNodes } from "./nodes/nodes.ts";
import type { SimProcess } from "../runtime/sim/simulation.ts";
import type { SimOptions } from "./options.ts";
import { knownLevel } from "../proto/format-level.ts";
import { SimDataplanes } from "./nodes/policies.ts";
import { comeToRest } from "./rest.ts";
import { Scene, sentence, type Keeps } from "./scene.ts";
import { controllerSockets, SimStorage } from "./nodes/storage.ts";
import { Trials } from "./trials.ts";
import { Workloads } from "./workloads/workloads.ts";

/** Never breaks: some services depend on it. */
const sparedAgent = "a1";
/** Virtual time in which the first manager must have founded the cluster. */
const foundingMsMax = 60_000;

export interface SimResult {
  /** The violation, in one sentence; null for a run without one. */
  readonly failure: string | null;
  readonly digest: string;
  readonly trace: string;
  /** Finished spans of all processes, in the order of their ends; none if they were not kept. */
  readonly spans: readonly ReadableSpan[];
  /** A file for `muster replay`; null if it was not kept. */
  readonly recording: Uint8Array | null;
  readonly steps: number;
  readonly virtualMs: number;
  /** The strikes of faults. */
  readonly strikes: readonly Strike[];
  /** Last version of the log. */
  readonly versions: number;
  readonly marks: ReadonlyMap<string, number>;
  /** By chart and transition, such as `session serving#heartbeat#0`: how often it was taken. Empty if not kept. */
  readonly transitions: ReadonlyMap<string, number>;
}

export async function runSeed(options: SimOptions, keeps: Keeps = {}): Promise<SimResult> {
  const world = new World(options, keeps);
  return world.run();
}

class World {
  readonly #scene: Scene;
  readonly #managers: SimManagers;
  readonly #nodes: SimNodes;
  readonly #workloads: Workloads;
  readonly #checks: CommitChecks;
  /** Null in a run without cluster volumes. */
  readonly #storage: SimStorage | null;
  /** Null in a run without network policy. */
  readonly #dataplanes: SimDataplanes | null;
  /** Null before the fault phase. */
  #faults: Faults | null = null;
  #isHealed = false;
  #hasJoined = false;

  constructor(options: SimOptions, keeps: Keeps) {
    const scene = new Scene(options, keeps);
    const { simulation } = scene;
    this.#scene = scene;
    this.#dataplanes =
      options.policyOperations === 0
        ? null
        : new SimDataplanes(simulation.trace, options.dataplanes, (claim) => scene.fail(claim));
    this.#storage =
      options.volumeOperations === 0
        ? null
        : new SimStorage(simulation.ports("storage"), simulation.trace, options.storage);
    this.#managers = new SimManagers(scene, {
      csi: (ports) => (this.#storage === null ? null : controllerSockets(ports)),
      serveJson: options.jsonClients > 0 ? serveSimJson : null,
      onReplica: (name, replica) => this.#checks.follow(name, replica),
      onRetired: () => {
        if (this.#isHealed) this.#nodes.tellOfManagers();
      },
    });
    const [managers, storage, dataplanes] = [this.#managers, this.#storage, this.#dataplanes];
    this.#nodes = new SimNodes(scene, { managers, storage, dataplanes });
    this.#workloads = new Workloads(scene, managers);
    this.#checks = new CommitChecks(scene, { nodes: this.#nodes, workloads: this.#workloads, storage, managers });
    simulation.nats.onTailLost = (kept) => {
      this.#workloads.excuseAfter(kept);
      this.#checks.forgetAfter(kept);
    };
  }

  async run(): Promise<SimResult> {
    const { clock, trace, nats, spans } = this.#scene.simulation;
    const onRejection = (reason: unknown) =>
      this.#scene.fail(`P1: an unhandled promise rejection: ${sentence(reason)}`);
    process.on("unhandledRejection", onRejection);
    try {
      await this.#found();
      if (this.#scene.failure === null) {
        const faults = await this.#trouble();
        if (this.#scene.failure === null) await this.#heal(faults);
        if (this.#scene.failure === null) await this.#try();
      }
    } catch (error) {
      this.#scene.fail(`P2: the simulation threw: ${sentence(error)}`);
    } finally {
      for (const each of [...this.#managers.processes, ...this.#nodes.processes]) each.crash();
      process.off("unhandledRejection", onRejection);
    }
    const { failedAtMs, failure, recording, transitions } = this.#scene;
    return {
      failure,
      digest: trace.digest(),
      trace: trace.text(),
      spans: spans ?? [],
      recording: (await recording?.file(failure, failedAtMs)) ?? null,
      steps: clock.steps,
      virtualMs: Math.round(clock.elapsed),
      strikes: this.#faults?.struck ?? [],
      versions: nats.last,
      marks: trace.marks,
      transitions,
    };
  }

  async #found(): Promise<void> {
    for (let number = 1; number <= this.#scene.options.managers; number += 1) this.#managers.add(`m${number}`);
    // Half of the worlds with upgrades begin with a cluster of the older version.
    const isUpgraded = this.#scene.options.rates["manager.older"] > 0;
    if (isUpgraded && this.#scene.simulation.random.fork("format-level").chance(0.5))
      for (const each of this.#managers.processes)
        this.#managers.setVersion(each, { isOlder: true, level: knownLevel - 1 });
    for (const each of this.#managers.processes) each.start();
    const { all } = this.#managers;
    await this.#scene.runUntil(
      () => this.#managers.areServing && all.every(({ running }) => running?.joinToken() !== null),
      foundingMsMax,
    );
    if (!this.#managers.areServing) this.#scene.fail(`L1: no cluster was founded within ${foundingMsMax} ms`);
  }

  async #trouble(): Promise<Faults> {
    const { options, simulation } = this.#scene;
    for (let number = 1; number <= options.agents; number += 1) this.#nodes.add(`a${number}`);
    for (const each of this.#nodes.processes) each.start();
    this.#workloads.start();
    this.#managers.unlock();
    this.#managers.startPromoted();
    this.#nodes.addLate();
    const attacker = options.attackMs === 0 ? null : startAttacker(simulation, options.attackMs);
    this.#faults = startFaults(simulation, options, {
      managers: this.#managers.processes,
      agents: this.#nodes.processes,
      leader: () => this.#managers.leader,
      older: () => this.#managers.older(),
      setVersion: (manager, version) => this.#managers.setVersion(manager, version),
      mayLoseTail: () => this.#mayLoseTail(),
      losePower: (agent) => this.#nodes.losePower(agent),
      mayBreak: (process) => this.#mayBreak(process),
      diskWentBack: (agent) => this.#nodes.forgetStarts(agent, (taskId) => this.#checks.isToldStarted(taskId)),
    });
    await this.#scene.runUntil(() => false, options.faultsMs);
    attacker?.stop();
    return this.#faults;
  }

  async #heal(faults: Faults): Promise<void> {
    faults.heal();
    this.#storage?.heal();
    this.#dataplanes?.heal();
    this.#nodes.heal();
    // Only a restarted process reports again what the log has lost, so an operator would restart everything.
    if (this.#scene.isTailLost)
      for (const each of [...this.#managers.processes, ...this.#nodes.processes]) each.restart();
    if (this.#scene.options.endsWithAllManagers) this.#workloads.restoreRoles();
    this.#isHealed = true;
    if (this.#managers.all.some(({ isRetired }) => isRetired)) this.#nodes.tellOfManagers();
    await this.#rest();
  }

  async #try(): Promise<void> {
    const trials = new Trials({
      scene: this.#scene,
      managers: this.#managers,
      nodes: this.#nodes,
      workloads: this.#workloads,
      spared: sparedAgent,
    });
    await trials.run(() => this.#rest());
  }

  async #rest(): Promise<void> {
    await comeToRest(this.#scene, {
      managers: this.#managers,
      nodes: this.#nodes,
      workloads: this.#workloads,
      checks: this.#checks,
      storage: this.#storage,
      dataplanes: this.#dataplanes,
    });
  }

  /**
   * Whether the cluster can do without the machine's disk: it has joined, another manager has the keys, and one agent remains.
   * A
   * node that does not come back, or with an older certificate, blocks a rotation of the root.
   */
  #mayBreak(process: SimProcess): boolean {
    const { options } = this.#scene;
    if (options.certificateOperations > 0 || this.#scene.isTailLost) return false;
    const isManager = this.#managers.processes.includes(process);
    // Always the same manager: keys that all have forgotten are lost, and a demoted manager forgets its keys.
    const isSecond = process === this.#managers.processes[1] && options.roleOperations === 0;
    if (isManager ? !isSecond : process.name === sparedAgent) return false;
    return this.#managers.all.some(({ running }) => running?.store.byName("node", process.name)?.description != null);
  }

  /** Once all have joined and stored that on disk. */
  #mayLoseTail(): boolean {
    const { options, simulation } = this.#scene;
    const wanted = options.managers + options.agents;
    const isJoined = this.#managers.all.some(({ running }) => running?.store.count("node") === wanted);
    if (isJoined && !this.#hasJoined) simulation.nats.sync();
    const before = this.#hasJoined;
    this.#hasJoined ||= isJoined;
    return before;
  }
}
