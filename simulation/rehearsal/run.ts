/** Rehearses a scenario once, on a simulated copy of a cluster: the real actors, machines and store, in simulated time. */
import { UserError } from "../../lib/user-error.ts";
import { NodeStatus_State, type NetworkSpec } from "../../proto/gen/messages.ts";
import { isJob } from "../../machines/orchestration/service-mode.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Commit } from "../../runtime/store/store.ts";
import { snapshotDefaults } from "../../runtime/store/snapshots.ts";
import { SimManagers } from "../managers/managers.ts";
import { quietOptions } from "../quiet-options.ts";
import { Scene, sentence } from "../scene.ts";
import { Behaviours, driverKinds } from "./behaviours.ts";
import { RehearsalChecks } from "./checks.ts";
import { Cuts } from "./cuts.ts";
import { advertisedFor } from "./deployable.ts";
import { LogFollower } from "./log-follower.ts";
import { labelSealing } from "./label-sealing.ts";
import { Measures } from "./measures.ts";
import { RehearsedNodes } from "./nodes.ts";
import { Operations } from "./operations.ts";
import type { RunOutcome } from "./outcome.ts";
import type { ClusterPlan, NodePlan, ScenarioPlan, ServicePlan } from "./plan.ts";
import { Probe } from "./probe.ts";
import { Requests } from "./requests.ts";
import { Steps } from "./steps.ts";
import { Registry } from "./task-machine.ts";

/** Simulated time without progress after which the founding goes on to the scenario as the cluster is, in milliseconds. */
const stuckMs = 120_000;
/** Maximum simulated time for the first manager and the nodes, in milliseconds. */
const foundingMsMax = 600_000;
/** Interval at which the founding is watched, and rollouts and jobs are sampled, in milliseconds. */
const lookMs = 1_000;
/** Number of samples of the placement in a run, at intervals of a second or more. */
const placementSamples = 300;

/**
 * Records of the log's history, one interval between snapshots: nothing in a rehearsal reads the past, and the default of managers would
 * keep a day of it in memory.
 */
const historyRecords = snapshotDefaults.everyRecords;

/** Managers that answer so have not decided. */
const silent: ReadonlySet<Status> = new Set([Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED]);

interface RunOptions {
  /** Called about once a second of simulated time, with the simulated milliseconds of the scenario so far; 0 while founding. */
  readonly onProgress?: (ranMs: number) => void;
  /** Called with each commit of the log since the scenario began, at this many milliseconds after that. */
  readonly onCommit?: (commit: Commit, atMs: number) => void;
  /** Asked often; the run ends early when it returns true. */
  readonly isCancelled?: () => boolean;
  /**
   * Called at the end with a recording of the run, for `muster replay`; the outcome is the same without. `fromMs`: simulated
   * milliseconds, from the founding on, of which it lacks steps because the run is too long; 0: none.
   */
  readonly onRecording?: (file: Uint8Array, fromMs: number) => void;
  /** Maximum compressed bytes of the recording. */
  readonly recordingBytesMax?: number;
}

/** Managers refuse the plan's cluster: it is wrong, and no scenario was played. */
export class SetUpRefused extends UserError {}

/** The same plans and seed give the same outcome. Throws SetUpRefused. */
export async function rehearse(
  cluster: ClusterPlan,
  scenario: ScenarioPlan,
  seed: number,
  options: RunOptions = {},
): Promise<RunOutcome> {
  return new Rehearsal(cluster, scenario, seed, options).run();
}

/** Services that a run will ever have. */
function servicesOf(cluster: ClusterPlan, scenario: ScenarioPlan): readonly ServicePlan[] {
  const deployed = scenario.steps.flatMap(({ action }) =>
    action.kind === "deploy" || action.kind === "update" ? [action.service] : [],
  );
  return [...cluster.services, ...deployed];
}

function hasSubnets({ ipam }: NetworkSpec): boolean {
  return ipam?.configs.some(({ subnet }) => subnet !== "") === true;
}

class Rehearsal {
  readonly #cluster: ClusterPlan;
  readonly #scenario: ScenarioPlan;
  readonly #options: RunOptions;
  readonly #scene: Scene;
  readonly #managers: SimManagers;
  readonly #nodes: RehearsedNodes;
  readonly #measures: Measures;
  readonly #operations: Operations;
  readonly #probe: Probe;
  readonly #steps: Steps;
  /** Simulated time at which the scenario began; infinite before. */
  #beganAt = Number.POSITIVE_INFINITY;
  #isCancelled = false;

  constructor(cluster: ClusterPlan, scenario: ScenarioPlan, seed: number, options: RunOptions) {
    this.#cluster = cluster;
    this.#scenario = scenario;
    this.#options = options;
    const agents = cluster.nodes.length;
    this.#scene = new Scene(
      { ...quietOptions({ seed, managers: cluster.managers, agents }), historyRecords },
      {
        dropTrace: true,
        recording: options.onRecording !== undefined,
        recordingBytesMax: options.recordingBytesMax,
      },
      Number.POSITIVE_INFINITY,
    );
    const scene = this.#scene;
    const { simulation } = scene;
    this.#measures = new Measures(() => simulation.clock.elapsed);
    this.#managers = new SimManagers(scene, {
      csi: () => null,
      onReplica: (name, replica) => {
        this.#measures.follow(replica);
        commits.follow(replica);
        checks.follow(name, replica);
      },
      onRetired: () => {},
      snapshotEvery: snapshotDefaults.everyRecords,
      checksBus: false,
      sealing: labelSealing,
    });
    const managers = this.#managers;
    const commits = new LogFollower((commit) => {
      if (this.#ranMs > 0) options.onCommit?.(commit, this.#ranMs);
    });
    const checks = new RehearsalChecks({
      scene,
      managers,
      haveClocksStepped: scenario.steps.some(({ action }) => action.kind === "step-clocks"),
    });
    const behaviours = new Behaviours();
    const registry = new Registry();
    const services = servicesOf(cluster, scenario);
    const specs = services.map(({ spec }) => spec);
    const drivers = [...driverKinds(services)].map((kind) => ({ kind, advertised: advertisedFor(kind, specs) }));
    const onRunning = (service: string, change: 1 | -1): void => this.#measures.run(service, change);
    this.#nodes = new RehearsedNodes(scene, { managers, behaviours, registry, drivers, onRunning });
    const ports = simulation.ports("operator");
    const onRefused = (request: string, reason: string): void => this.#measures.refuse(request, reason);
    const requests = new Requests({ ports, managers, onRefused });
    this.#operations = new Operations({ requests, behaviours, patienceMs: () => this.#patienceMs() });
    const probing = simulation.ports("probe");
    this.#probe = new Probe(probing.clock, new Requests({ ports: probing, managers, onRefused }));
    this.#steps = new Steps({
      scene,
      managers,
      nodes: this.#nodes,
      operations: this.#operations,
      cuts: new Cuts(simulation.network),
      registry,
      onEvent: (text) => this.#measures.event(text),
      onJoining: (node) => {
        this.#label(node.plan);
        this.#nodes.startFailures(node);
      },
    });
  }

  async run(): Promise<RunOutcome> {
    const { seed } = this.#scene.options;
    const onRejection = (reason: unknown): void =>
      this.#scene.fail(`P1: an unhandled promise rejection: ${sentence(reason)}`);
    process.on("unhandledRejection", onRejection);
    try {
      await this.#found();
      if (!this.#isOver) await this.#play();
    } catch (error) {
      if (error instanceof SetUpRefused) throw error;
      this.#scene.fail(`P2: the simulation threw: ${sentence(error)}`);
    } finally {
      for (const each of this.#scene.simulation.processes) each.crash();
      process.off("unhandledRejection", onRejection);
    }
    const ranMs = this.#ranMs;
    const { failedAtMs, failure, recording } = this.#scene;
    if (recording !== null) this.#options.onRecording?.(await recording.file(failure, failedAtMs), recording.fromMs);
    return {
      seed,
      ranMs,
      violation: this.#scene.failure,
      ...this.#measures.measured(ranMs),
      requests: this.#probe.requests,
    };
  }

  get #isOver(): boolean {
    return this.#scene.failure !== null || this.#isCancelled;
  }

  /** Milliseconds of the scenario so far. */
  get #ranMs(): number {
    return Math.max(0, Math.round(this.#scene.simulation.clock.elapsed - this.#beganAt));
  }

  /** Until the end of the scenario. */
  #patienceMs(): number {
    return Math.max(0, this.#scenario.durationMs - this.#ranMs);
  }

  /** A cluster with its nodes, networks and services, as far as they come up, and jobs that have just been created. */
  async #found(): Promise<void> {
    for (let number = 1; number <= this.#cluster.managers; number += 1) this.#managers.add(`manager-${number}`);
    for (const each of this.#managers.processes) each.start();
    const isFounded = (): boolean => this.#managers.areServing && this.#managers.joinToken() !== "";
    await this.#until(isFounded, foundingMsMax);
    if (this.#isOver) return;
    if (!isFounded()) return this.#scene.fail(`L1: no cluster was founded within ${foundingMsMax / 1_000} s`);
    for (const plan of this.#cluster.nodes) this.#nodes.add(plan);
    await this.#while(() => this.#readyNodes(), this.#cluster.nodes.length);
    const { networks, nodes, services } = this.#cluster;
    await this.#set(async () => {
      await Promise.all(nodes.map((plan) => this.#labelled(plan)));
      // As long as the others have none, no requested subnet is taken.
      for (const spec of networks.toSorted((a, b) => Number(hasSubnets(b)) - Number(hasSubnets(a))))
        await this.#operations.createNetwork(spec);
      for (const plan of services) if (!isJob(plan.spec)) await this.#operations.deploy(plan);
    });
    const running = (): number => [...this.#nodes.all.values()].reduce((sum, { machine }) => sum + machine.count, 0);
    await this.#while(() => (this.#measures.areFull ? Number.POSITIVE_INFINITY : running()), Number.POSITIVE_INFINITY);
    // Jobs begin with the scenario: how long the founding took means nothing.
    const jobs = services.filter(({ spec }) => isJob(spec));
    if (jobs.length === 0 || this.#isOver) return;
    await this.#set(async () => {
      for (const plan of jobs) await this.#operations.deploy(plan);
    });
  }

  /** Sets a part of the cluster up, through the managers. */
  async #set(work: () => Promise<void>): Promise<void> {
    let isDone = false;
    let refused: RpcError | null = null;
    work().then(
      () => (isDone = true),
      (error: unknown) => {
        if (error instanceof RpcError && !silent.has(error.code)) refused = error;
        else this.#scene.fail(`P2: setting the cluster up threw: ${sentence(error)}`);
      },
    );
    await this.#until(() => isDone || refused !== null, foundingMsMax);
    if (refused !== null)
      throw new SetUpRefused(`managers refuse the cluster: ${(refused as RpcError).message}`, { cause: refused });
    if (!isDone && !this.#isOver) this.#scene.fail("the cluster cannot be set up: managers did not answer in time");
  }

  async #labelled({ labels, name }: NodePlan): Promise<void> {
    if (Object.keys(labels).length > 0) await this.#operations.setLabels(name, labels);
  }

  /** A new node gets its labels as soon as managers know it. */
  #label(plan: NodePlan): void {
    const { clock } = this.#scene.simulation;
    if (Object.keys(plan.labels).length === 0) return;
    if (this.#measures.store?.byName("node", plan.name) === undefined) {
      clock.schedule(() => this.#label(plan), lookMs, null);
      return;
    }
    this.#labelled(plan).catch((error: unknown) => {
      if (!(error instanceof RpcError)) this.#scene.fail(`P2: labelling a node threw: ${sentence(error)}`);
    });
  }

  #readyNodes(): number {
    const store = this.#measures.store;
    if (store === null) return 0;
    let ready = 0;
    for (const { description, status } of store.all("node"))
      if (status?.state === NodeStatus_State.READY && this.#nodes.all.has(description?.hostname ?? "")) ready += 1;
    return ready;
  }

  /** Runs until `progress` reaches the goal, or stays the same for a while. */
  async #while(progress: () => number, goal: number): Promise<void> {
    let [best, leftMs] = [progress(), stuckMs];
    while (best < goal && leftMs > 0 && !this.#isOver) {
      await this.#until(() => false, lookMs);
      const now = progress();
      leftMs = now > best ? stuckMs : leftMs - lookMs;
      best = Math.max(best, now);
    }
  }

  async #play(): Promise<void> {
    const { durationMs, steps } = this.#scenario;
    const { clock } = this.#scene.simulation;
    this.#beganAt = clock.elapsed;
    this.#measures.begin();
    for (const { action, atMs } of steps) clock.schedule(() => this.#steps.begin(action), atMs, null);
    for (const node of this.#nodes.all.values()) this.#nodes.startFailures(node);
    this.#probe.start();
    this.#sampleEvery(lookMs, () => this.#measures.sampleProgress(clock.now(), lookMs));
    this.#sampleEvery(Math.max(lookMs, durationMs / placementSamples), () => this.#measures.samplePlacement());
    await this.#until(() => false, durationMs);
  }

  #sampleEvery(ms: number, work: () => void): void {
    this.#scene.simulation.clock.schedule(
      () => {
        work();
        this.#sampleEvery(ms, work);
      },
      ms,
      null,
    );
  }

  /** Runs for this long, or until it holds, or until the run is cancelled. */
  async #until(holds: () => boolean, ms: number): Promise<void> {
    const { clock } = this.#scene.simulation;
    const end = clock.elapsed + ms;
    while (!this.#isOver && !holds() && clock.elapsed < end) {
      // The clock shows whole milliseconds.
      await this.#scene.runUntil(holds, Math.min(lookMs, Math.ceil(end - clock.elapsed) + 1));
      this.#isCancelled = this.#options.isCancelled?.() === true;
      this.#options.onProgress?.(this.#ranMs);
    }
  }
}
