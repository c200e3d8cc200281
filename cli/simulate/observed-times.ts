/**
 * Measures from a cluster's log: how long images took to pull and tasks to start and stop, and jobs to run, how often these
 * failed, and how often nodes were down. Fed with the versions of each object in their order.
 */
import { isWanted } from "../../machines/task.ts";
import { NodeStatus_State, TaskState, type Node, type Task } from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import type { BehaviourPlan, DurationPlan, NodeFailures, RunPlan } from "../../simulation/rehearsal/plan.ts";
import { behaviourDefaults, runDefaults } from "./read-behaviour.ts";
import { percentile } from "./spread.ts";

/** Fewer samples say too little about one service; then those of all services count, then the defaults. */
const samplesMin = 5;
/** Shortest mean times, those of files. */
const failureMsMin = 1_000;

interface Samples {
  readonly pulls: number[];
  readonly starts: number[];
  readonly stops: number[];
  /** How long tasks of jobs ran that ended by themselves. */
  readonly runs: number[];
  failedRuns: number;
  started: number;
  failedStarts: number;
  failures: number;
  runningMs: number;
}

interface Seen {
  state: TaskState;
  /** When each state was reached, by the clock of its node. */
  readonly at: Map<TaskState, number>;
  stopAskedMs: number | null;
  hasEnded: boolean;
}

function noSamples(): Samples {
  return {
    pulls: [],
    starts: [],
    stops: [],
    runs: [],
    failedRuns: 0,
    started: 0,
    failedStarts: 0,
    failures: 0,
    runningMs: 0,
  };
}

export class ObservedTimes {
  readonly #ownerOf: (serviceId: string) => string;
  readonly #tasks = new Map<string, Seen>();
  readonly #services = new Map<string, Samples>();
  readonly #all = noSamples();
  /** Images that a node has, by node and image. */
  readonly #pulled = new Set<string>();
  readonly #nodes = new Map<string, { isUp: boolean; sinceMs: number }>();
  readonly #outages = { upMs: 0, downMs: 0, begun: 0, ended: 0 };

  /** `ownerOf`: the service for which a service's tasks count, such as the scheduled job of a run; by default itself. */
  constructor(ownerOf: (serviceId: string) => string = (serviceId) => serviceId) {
    this.#ownerOf = ownerOf;
  }

  /** A version of a task. Those of attachments, which belong to no service, are ignored. */
  addTask(task: Task): void {
    const { id, serviceId, status } = task;
    const ms = status?.timestamp == null ? null : timeMs(status.timestamp);
    if (serviceId === "" || status === null || ms === null) return;
    const seen = this.#tasks.get(id);
    if (seen === undefined) {
      // Its earlier states are not known if the log begins later.
      const hasEnded = status.state > TaskState.RUNNING;
      this.#tasks.set(id, { state: status.state, at: new Map([[status.state, ms]]), stopAskedMs: null, hasEnded });
      return;
    }
    if (seen.stopAskedMs === null && !isWanted(task) && task.meta?.updatedAt != null) {
      seen.stopAskedMs = timeMs(task.meta.updatedAt);
    }
    if (status.state <= seen.state || seen.hasEnded) return;
    seen.state = status.state;
    seen.at.set(status.state, ms);
    if (status.state === TaskState.RUNNING) this.#addStart(task, seen, ms);
    if (status.state > TaskState.RUNNING) this.#addEnd(task, seen, ms);
  }

  #samplesOf(serviceId: string): readonly Samples[] {
    const ownerId = this.#ownerOf(serviceId);
    const own = this.#services.get(ownerId) ?? noSamples();
    this.#services.set(ownerId, own);
    return [own, this.#all];
  }

  #addStart(task: Task, { at }: Seen, ms: number): void {
    const starting = at.get(TaskState.STARTING);
    const preparing = at.get(TaskState.PREPARING);
    const prepared = at.get(TaskState.READY) ?? starting;
    const image = task.spec?.container?.image ?? "";
    const onNode = `${task.nodeId} ${image}`;
    // Tasks without an image are prepared anew each time.
    const isPulled = image !== "" && this.#pulled.has(onNode);
    this.#pulled.add(onNode);
    for (const samples of this.#samplesOf(task.serviceId)) {
      samples.started += 1;
      if (starting !== undefined && ms >= starting) samples.starts.push(ms - starting);
      // Later tasks of a node find the image there.
      if (!isPulled && preparing !== undefined && prepared !== undefined && prepared >= preparing)
        samples.pulls.push(prepared - preparing);
    }
  }

  #addEnd(task: Task, seen: Seen, ms: number): void {
    seen.hasEnded = true;
    const running = seen.at.get(TaskState.RUNNING);
    const isAsked = seen.stopAskedMs !== null;
    const isFailed = seen.state === TaskState.FAILED || seen.state === TaskState.REJECTED;
    const hasRun = running !== undefined && (isFailed || seen.state === TaskState.COMPLETE);
    for (const samples of this.#samplesOf(task.serviceId)) {
      if (task.jobIteration !== null && hasRun && !isAsked) {
        samples.runs.push(Math.max(0, ms - running));
        samples.failedRuns += Number(isFailed);
        continue;
      }
      if (running !== undefined) samples.runningMs += Math.max(0, ms - running);
      if (isAsked && running !== undefined && seen.state <= TaskState.FAILED) {
        samples.stops.push(Math.max(0, ms - (seen.stopAskedMs ?? ms)));
      }
      if (isAsked || !isFailed) continue;
      if (running === undefined) samples.failedStarts += 1;
      else samples.failures += 1;
    }
  }

  /** A version of a node. */
  addNode(node: Node): void {
    const ms = node.meta?.updatedAt == null ? null : timeMs(node.meta.updatedAt);
    const state = node.status?.state;
    if (ms === null || (state !== NodeStatus_State.READY && state !== NodeStatus_State.DOWN)) return;
    const isUp = state === NodeStatus_State.READY;
    const seen = this.#nodes.get(node.id);
    if (seen === undefined) {
      this.#nodes.set(node.id, { isUp, sinceMs: ms });
      return;
    }
    if (seen.isUp === isUp) return;
    this.#count(seen, ms);
    if (seen.isUp) this.#outages.begun += 1;
    else this.#outages.ended += 1;
    this.#nodes.set(node.id, { isUp, sinceMs: ms });
  }

  #count({ isUp, sinceMs }: { readonly isUp: boolean; readonly sinceMs: number }, ms: number): void {
    const length = Math.max(0, ms - sinceMs);
    if (isUp) this.#outages.upMs += length;
    else this.#outages.downMs += length;
  }

  /** Counts what still runs at this time; call it once, at the end. */
  close(nowMs: number): void {
    for (const node of this.#nodes.values()) this.#count(node, nowMs);
  }

  /** Mean running time of tasks that still run counts as well. */
  addRunning(task: Task, nowMs: number): void {
    const running = this.#tasks.get(task.id)?.at.get(TaskState.RUNNING);
    if (running === undefined || task.status?.state !== TaskState.RUNNING) return;
    for (const samples of this.#samplesOf(task.serviceId)) samples.runningMs += Math.max(0, nowMs - running);
  }

  /** Number of starts that were seen, failed ones included. */
  startsOf(serviceId: string): number {
    const { failedStarts, started } = this.#services.get(serviceId) ?? noSamples();
    return started + failedStarts;
  }

  behaviourOf(serviceId: string, isJob = false): BehaviourPlan {
    const own = this.#services.get(serviceId) ?? noSamples();
    const tries = own.started + own.failedStarts;
    return {
      pull: this.#durationOf(own, "pulls", behaviourDefaults.pull),
      start: this.#durationOf(own, "starts", behaviourDefaults.start),
      stop: this.#durationOf(own, "stops", behaviourDefaults.stop),
      startFailure: tries < samplesMin ? 0 : Number((own.failedStarts / tries).toFixed(4)),
      meanLifeMs: isJob || own.failures === 0 ? null : Math.max(failureMsMin, Math.round(own.runningMs / own.failures)),
      run: isJob ? this.#runOf(own) : null,
    };
  }

  #runOf(own: Samples): RunPlan {
    return {
      length: this.#durationOf(own, "runs", runDefaults.length),
      failure: own.runs.length < samplesMin ? 0 : Number((own.failedRuns / own.runs.length).toFixed(4)),
    };
  }

  #durationOf(own: Samples, key: "pulls" | "starts" | "stops" | "runs", otherwise: DurationPlan): DurationPlan {
    const samples = [own[key], this.#all[key]].find((each) => each.length >= samplesMin);
    if (samples === undefined) return otherwise;
    const sorted = samples.toSorted((a, b) => a - b);
    return { medianMs: Math.round(percentile(sorted, 0.5)), p99Ms: Math.round(percentile(sorted, 0.99)) };
  }

  /** The same for all nodes: one node fails too rarely to know its own rate. Null: none failed. */
  nodeFailures(): NodeFailures | null {
    const { upMs, downMs, begun, ended } = this.#outages;
    if (begun === 0) return null;
    return {
      meanUpMs: Math.max(failureMsMin, Math.round(upMs / begun)),
      meanDownMs: Math.max(failureMsMin, Math.round(downMs / Math.max(1, ended))),
    };
  }
}
