/** The interface of the parts of orchestration: how they receive changes and have decisions written. */
import {
  Kind,
  Operation,
  Origin,
  ProposeRequest_Mode,
  Removal,
  type Cluster,
  type Network,
  type Node,
  type Rollout,
  type Service,
  type Task,
  type Timestamp,
  type Volume,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { isNodeBound } from "../../machines/task.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import type { Environment, Running } from "../environment.ts";

/**
 * A part receives every change of a transaction and then its end. `old` is null for a created object, the other for a removed
 * one.
 */
export interface Part extends Running {
  taskChanged?(old: Task | null, task: Task | null): void;
  nodeChanged?(old: Node | null, node: Node | null): void;
  serviceChanged?(old: Service | null, service: Service | null): void;
  networkChanged?(old: Network | null, network: Network | null): void;
  volumeChanged?(old: Volume | null, volume: Volume | null): void;
  clusterChanged?(old: Cluster | null, cluster: Cluster | null): void;
  rolloutChanged?(old: Rollout | null, rollout: Rollout | null): void;
  /** Slots of a service that a rollout wants updated now; may be called at any time. */
  turnsCame?(serviceId: string, slots: readonly string[]): void;
  commitEnded(): void;
}

/** Maximum tasks per round of a part: about 4 ms in which heartbeats wait. */
export const roundTasksMax = 300;

/** Maximum operations per proposal, and steps turned into operations at once: about 6 ms; fewer cost a tenth more CPU. */
const proposalOperationsMax = 500;
/** Maximum pending proposals of one leader's orchestration; the others wait here. */
const proposalsInFlightMax = 4;
/** Timeout of proposals to the ledger, in milliseconds; the ledger is in this process, so only the log can delay it. */
const proposalTimeoutMs = 10_000;
/** Delay before an unanswered proposal is sent again, in milliseconds. */
const retryMs = 200;
/** Delay before a permanently refused decision is made again, in milliseconds. */
const refusalPauseMs = 1_000;

interface Chunk {
  readonly operations: readonly Operation[];
  readonly origin: Origin;
  settled(): void;
}

/** Decisions waiting to be written, of all parts in one order. */
interface Lane {
  readonly queue: Chunk[];
  readonly timers: Set<TimerHandle>;
  inFlight: number;
  isStopped: boolean;
}

/**
 * Writes decisions in chunks.
 *
 * W1: a decision with an unknown outcome is sent again unchanged, not decided again: its tasks already have their ids, so they
 *     cannot be created twice.
 * W2: the end of a slot's task and its successor are in the same proposal.
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

  /** A writer for a part with its own origin, in one order with the others. */
  as(origin: Origin): Writer {
    return new Writer(this.#env, origin, this.#lane);
  }

  /**
   * `settled` is called once everything is in the own replica or was refused, but not after `stop`. Requires at least one
   * operation.
   */
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
   * Like `write`, for a decision that may be large: its steps become operations in parts, so that other work of this process
   * gets its turn. `operationOf` is not called after `stop`.
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
            "the ledger refused a decision of the orchestration",
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

/** Where the list may be split, at most `most` from `from`: never between a patch and the creation that follows it (W2). */
function cutAfter<One>(list: readonly One[], from: number, most: number, isCreation: (one: One) => boolean): number {
  let to = Math.min(list.length, from + most);
  if (to === list.length) return to;
  while (to > from + 1 && isCreation(list[to] as One) && !isCreation(list[to - 1] as One)) to -= 1;
  return to;
}

/** The current time as a message. */
export function now(env: Environment): Timestamp {
  return timestampOf(env.clock.now());
}

export function deletion(task: Task): Operation {
  return Operation.create({ remove: Removal.create({ kind: Kind.KIND_TASK, id: task.id }) });
}

/** The key of a slot in maps; a global service's slot is its node. */
export function slotKey(task: Task): string {
  return isNodeBound(task) ? `${task.serviceId}@${task.nodeId}` : `${task.serviceId}#${task.slot}`;
}
