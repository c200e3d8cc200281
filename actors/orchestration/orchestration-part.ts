/** What the parts of orchestration have in common: how they hear of changes, and how they have decisions written. */
import {
  Kind,
  Operation,
  Origin,
  ProposeRequest_Mode,
  Removal,
  TaskPatch,
  TaskStatus,
  type Cluster,
  type Network,
  type Node,
  type Rollout,
  type Service,
  type Task,
  type TaskState,
  type Timestamp,
  type Volume,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { mayAdvance, type TaskMover } from "../../machines/task-life.ts";
import { isNodeBound, observedState } from "../../machines/task.ts";
import { assert } from "../../runtime/assert.ts";
import type { TimerHandle } from "../../runtime/ports.ts";
import type { Environment, Running } from "../environment.ts";

/** A part is told of every change of a transaction and then of its end. `old` is null for what is new, the other for what is gone. */
export interface Part extends Running {
  taskChanged?(old: Task | null, task: Task | null): void;
  nodeChanged?(old: Node | null, node: Node | null): void;
  serviceChanged?(old: Service | null, service: Service | null): void;
  networkChanged?(old: Network | null, network: Network | null): void;
  volumeChanged?(old: Volume | null, volume: Volume | null): void;
  clusterChanged?(old: Cluster | null, cluster: Cluster | null): void;
  rolloutChanged?(old: Rollout | null, rollout: Rollout | null): void;
  /** Slots of a service that a rollout wants tended now; may come at any time. */
  turnsCame?(serviceId: string, slots: readonly string[]): void;
  commitEnded(): void;
}

/** Most tasks that one round of a part deals with: some 4 ms in which heartbeats wait. */
export const roundTasksMax = 300;

/** Most operations of one proposal, and most steps turned into operations in one go: some 6 ms; fewer cost a tenth of the CPU more. */
const proposalOperationsMax = 500;
/** Proposals of one leader's orchestration under way at once; the others wait here. */
const proposalsInFlightMax = 4;
/** How long a proposal looks for the ledger, in milliseconds; it is this process's own, so only the log can hold it up. */
const proposalTimeoutMs = 10_000;
/** Before a proposal without an answer is sent again, in milliseconds. */
const retryMs = 200;
/** Before what the ledger refused for good is decided anew, in milliseconds. */
const refusalPauseMs = 1_000;

interface Chunk {
  readonly operations: readonly Operation[];
  readonly origin: Origin;
  settled(): void;
}

/** What waits to be written, of all parts in one order. */
interface Lane {
  readonly queue: Chunk[];
  readonly timers: Set<TimerHandle>;
  inFlight: number;
  isStopped: boolean;
}

/**
 * Has decisions written, in chunks.
 *
 * W1: a decision whose fate is not known is sent again as it was, not made anew: its tasks have their ids already, so it
 *     cannot create them twice.
 * W2: what follows the end of a slot's task stands in one proposal with that end.
 */
export class Writer implements Running {
  readonly #env: Environment;
  readonly #lane: Lane;
  readonly #origin: Origin;

  constructor(env: Environment, origin: Origin = Origin.ORIGIN_ORCHESTRATOR, lane?: Lane) {
    this.#env = env;
    this.#origin = origin;
    this.#lane = lane ?? { queue: [], timers: new Set(), inFlight: 0, isStopped: false };
  }

  /** For a part that writes under its own name, in one order with the others. */
  as(origin: Origin): Writer {
    return new Writer(this.#env, origin, this.#lane);
  }

  /** `settled` is called once everything is in the own replica or was refused, and not after `stop`. At least one operation. */
  write(operations: readonly Operation[], settled: () => void): void {
    let open = 0;
    const chunkSettled = (): void => {
      open -= 1;
      if (open === 0) settled();
    };
    let from = 0;
    while (from < operations.length) {
      const to = cutAfter(operations, from, proposalOperationsMax, ({ create }) => create !== null);
      open += 1;
      this.#lane.queue.push({
        operations: from === 0 && to === operations.length ? operations : operations.slice(from, to),
        origin: this.#origin,
        settled: chunkSettled,
      });
      from = to;
    }
    this.#send();
  }

  /**
   * As `write`, for a decision that may be large: its steps become operations a part at a time, and what else waits for
   * this process has its turn in between. `operationOf` is not called after `stop`.
   */
  writeSteps<Step extends { readonly kind: string }>(
    steps: readonly Step[],
    operationOf: (step: Step) => Operation,
    settled: () => void,
  ): void {
    let open = 0;
    let from = 0;
    const partSettled = (): void => {
      open -= 1;
      if (open === 0 && from === steps.length) settled();
    };
    const next = (): void => {
      if (this.#lane.isStopped) return;
      const to = cutAfter(steps, from, proposalOperationsMax, (step) => step.kind === "create");
      const part = steps.slice(from, to);
      from = to;
      open += 1;
      this.write(part.map(operationOf), partSettled);
      if (from < steps.length) this.#env.clock.soon(next);
    };
    next();
  }

  stop(): void {
    this.#lane.isStopped = true;
    this.#lane.queue.length = 0;
    for (const timer of this.#lane.timers) this.#env.clock.clearTimeout(timer);
    this.#lane.timers.clear();
  }

  #send(): void {
    while (this.#lane.inFlight < proposalsInFlightMax && !this.#lane.isStopped) {
      const chunk = this.#lane.queue.shift();
      if (chunk === undefined) return;
      this.#lane.inFlight += 1;
      this.#propose(chunk);
    }
  }

  #propose(chunk: Chunk): void {
    const { proposer, telemetry } = this.#env;
    const { operations, origin } = chunk;
    const mode = ProposeRequest_Mode.EACH;
    void proposer.propose({ operations, origin, mode, timeoutMs: proposalTimeoutMs }).then((outcome) => {
      if (this.#lane.isStopped) return;
      switch (outcome.kind) {
        case "committed":
          this.#finish(chunk);
          return;
        case "refused":
          telemetry.log.error(
            { code: outcome.code, reason: outcome.message },
            "the ledger refused an orchestration decision",
          );
          this.#later(refusalPauseMs, () => this.#finish(chunk));
          return;
        case "unavailable":
          this.#later(retryMs, () => this.#propose(chunk));
      }
    });
  }

  #finish(chunk: Chunk): void {
    this.#lane.inFlight -= 1;
    chunk.settled();
    this.#send();
  }

  #later(ms: number, callback: () => void): void {
    const timer = this.#env.clock.setTimeout(() => {
      this.#lane.timers.delete(timer);
      callback();
    }, ms);
    this.#lane.timers.add(timer);
  }
}

/** Where the list may be cut, at most `most` from `from`: never between a patch and a creation that follows it (W2). */
function cutAfter<One>(list: readonly One[], from: number, most: number, isCreation: (one: One) => boolean): number {
  let to = Math.min(list.length, from + most);
  if (to === list.length) return to;
  while (to > from + 1 && isCreation(list[to] as One) && !isCreation(list[to - 1] as One)) to -= 1;
  return to;
}

/** The present time as a message. */
export function now(env: Environment): Timestamp {
  return timestampOf(env.clock.now());
}

/** A status that many tasks of one round share. */
export function status(state: TaskState, message: string, timestamp: Timestamp): TaskStatus {
  return TaskStatus.create({ state, message, timestamp });
}

/** Moves a task, which `by` must be allowed to (T2). */
export function advance(task: Task, by: TaskMover, next: TaskStatus, fields: Partial<TaskPatch> = {}): Operation {
  const from = observedState(task);
  assert(mayAdvance(from, next.state, by), `T2: the ${by} may not move a task from ${from} to ${next.state}`);
  return Operation.create({ task: TaskPatch.create({ id: task.id, status: next, ...fields }) });
}

/** Says in a task's status why it goes no further; its state stays. */
export function complain(task: Task, message: string, err: string, timestamp: Timestamp): Operation {
  const next = TaskStatus.create({ state: observedState(task), message, err, timestamp });
  return Operation.create({ task: TaskPatch.create({ id: task.id, status: next }) });
}

export function desire(task: Task, state: TaskState): Operation {
  return Operation.create({ task: TaskPatch.create({ id: task.id, desiredState: state }) });
}

export function deletion(task: Task): Operation {
  return Operation.create({ remove: Removal.create({ kind: Kind.KIND_TASK, id: task.id }) });
}

/** Names a slot in maps; a global service's slot is its node. */
export function slotKey(task: Task): string {
  return isNodeBound(task) ? `${task.serviceId}@${task.nodeId}` : `${task.serviceId}#${task.slot}`;
}
