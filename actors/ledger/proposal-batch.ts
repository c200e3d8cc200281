/**
 * Collects operations of many callers for a few milliseconds and proposes them together. Only one proposal is pending at a
 * time, so that operations that arrive meanwhile make the next one larger (group commit), and order is kept.
 *
 * B1: of two operations with the same key in a batch, the later one wins: while the log is unavailable, the queue is bounded by
 *     the number of keys.
 * B2: a caller is answered only after the log has the operations, or has refused them for good.
 */
import { ProposeRequest_Mode, type Operation } from "../../proto/gen/messages.ts";
import { type Backoff, backoffMs, drawUpperHalf } from "../../lib/backoff.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import { inMessage } from "../../runtime/observation/cause.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { ProposeOutcome } from "../../runtime/store/store.ts";
import type { Environment } from "../environment.ts";

interface BatchOptions<Answer> {
  /** For logs and metrics. */
  readonly name: string;
  /** How long the first operation of a batch waits for others, in milliseconds. */
  readonly delayMs: number;
  /** The same after a batch of `busyOperations` or more; defaults to `delayMs`. */
  readonly busyDelayMs?: number;
  /** Answer once the log has the operation. */
  readonly done: Answer;
  /** Answer when no leader accepted it; null: never give up before `stop`. */
  readonly unavailable: Answer | null;
}

/**
 * Maximum operations and bytes per proposal. NATS carries 1 MB per message by default; half of it leaves space for a wrong
 * estimate.
 */
export const proposalOperationsMax = 1_000;
const proposalBytesMax = 512 * 1024;

/**
 * A batch of this size suggests that as many operations follow: collecting for longer then means fewer writes, since keys
 * repeat.
 */
const busyOperations = 64;

/** How long one proposal tries to reach a leader, in milliseconds: longer than an election, shorter than an agent's timeout. */
const proposeTimeoutMs = 5_000;
const retryBackoff: Backoff = { stepMs: 50, msMax: 2_000 };

interface Batch<Answer> {
  readonly operations: Map<string, Operation>;
  /** Approximate bytes of all operations. */
  bytes: number;
  readonly promise: Promise<Answer>;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

export class ProposalBatch<Answer> {
  readonly #env: Environment;
  readonly #options: BatchOptions<Answer>;
  #filling: Batch<Answer> | null = null;
  #sending: Batch<Answer> | null = null;
  #timer: TimerHandle | null = null;
  #wake: (() => void) | null = null;
  #stopped = false;
  /** Number of operations in the last batch. */
  #lastSize = 0;

  constructor(env: Environment, options: BatchOptions<Answer>) {
    this.#env = env;
    this.#options = options;
  }

  /** `bytes` is about the encoded size. All callers of one batch share one promise. */
  add(key: string, operation: Operation, bytes: number): Promise<Answer> {
    if (this.#stopped) return handled(Promise.reject(stopped()));
    const batch = (this.#filling ??= this.#open());
    batch.operations.set(key, operation);
    batch.bytes += bytes;
    return batch.promise;
  }

  /** Number of operations that the log does not have yet. */
  get size(): number {
    return (this.#filling?.operations.size ?? 0) + (this.#sending?.operations.size ?? 0);
  }

  /** The operation waiting under the key and not yet sent. */
  waiting(key: string): Operation | undefined {
    return this.#filling?.operations.get(key);
  }

  /** Rejects waiting operations with ABORTED; those in the log stay there. */
  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    if (this.#timer !== null) this.#env.clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#filling?.reject(stopped());
    this.#sending?.reject(stopped());
    this.#filling = null;
    this.#wake?.();
  }

  #open(): Batch<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    void handled(promise);
    if (this.#sending === null && this.#timer === null) this.#arm();
    return { operations: new Map(), bytes: 0, promise, resolve, reject };
  }

  #arm(): void {
    const { delayMs, busyDelayMs } = this.#options;
    const wait = this.#lastSize < busyOperations ? delayMs : (busyDelayMs ?? delayMs);
    this.#timer = this.#env.clock.setTimeout(() => {
      this.#timer = null;
      const batch = this.#filling;
      if (batch === null) return;
      this.#filling = null;
      this.#sending = batch;
      this.#lastSize = batch.operations.size;
      inMessage(this.#options.name, () => void this.#send(batch));
    }, wait);
  }

  async #send(batch: Batch<Answer>): Promise<void> {
    let answer = this.#options.done;
    for (const part of parts(batch)) {
      if (!(await this.#propose(part))) answer = this.#options.unavailable ?? answer;
    }
    this.#sending = null;
    if (this.#stopped) return batch.reject(stopped());
    batch.resolve(answer);
    if (this.#filling !== null) this.#arm();
  }

  /** False when no leader accepted it and giving up is allowed. */
  async #propose(operations: readonly Operation[]): Promise<boolean> {
    for (let attempt = 1; !this.#stopped; attempt += 1) {
      const outcome = await this.#env.proposer.propose({
        operations,
        mode: ProposeRequest_Mode.EACH,
        timeoutMs: proposeTimeoutMs,
      });
      if (outcome.kind === "committed") return true;
      if (outcome.kind === "refused" && !isPassing(outcome.code))
        return await this.#isolateRefused(operations, outcome);
      if (this.#options.unavailable !== null) return false;
      await this.#pause(attempt);
    }
    return false;
  }

  /** One operation that the ledger refuses must not block the others forever: it is found by halving, and dropped. */
  async #isolateRefused(
    operations: readonly Operation[],
    outcome: ProposeOutcome & { kind: "refused" },
  ): Promise<boolean> {
    if (operations.length > 1) {
      const middle = operations.length >> 1;
      const first = await this.#propose(operations.slice(0, middle));
      return (await this.#propose(operations.slice(middle))) && first;
    }
    const { log, metrics } = this.#env.telemetry;
    metrics
      .counter("muster_batch_dropped_operations_total", "Operations that the ledger permanently refused.")
      .add(1, { batch: this.#options.name });
    log.error(
      { batch: this.#options.name, code: outcome.code, reason: outcome.message },
      "dropped an operation that the ledger permanently refused",
    );
    return true;
  }

  #pause(attempt: number): Promise<void> {
    const waitMs = drawUpperHalf(this.#env.random)(backoffMs(retryBackoff, attempt));
    return new Promise((resolve) => {
      const timer = this.#env.clock.setTimeout(finish, waitMs);
      const { clock } = this.#env;
      const forget = (): void => {
        this.#wake = null;
      };
      function finish(): void {
        clock.clearTimeout(timer);
        forget();
        resolve();
      }
      this.#wake = finish;
    });
  }
}

/** Splits by the average size: a part that turns out too large is refused, and then halved. */
function* parts<Answer>(batch: Batch<Answer>): Iterable<readonly Operation[]> {
  const operations = [...batch.operations.values()];
  const average = Math.max(1, batch.bytes / operations.length);
  const length = Math.max(1, Math.min(proposalOperationsMax, Math.floor(proposalBytesMax / average)));
  for (let at = 0; at < operations.length; at += length) yield operations.slice(at, at + length);
}

/** Callers may ignore the answer: a dropped operation is logged here. */
function handled<Answer>(promise: Promise<Answer>): Promise<Answer> {
  promise.catch(() => {});
  return promise;
}

function isPassing(code: ErrorCode): boolean {
  return code === ErrorCode.notLeader || code === ErrorCode.logUnavailable;
}

function stopped(): RpcError {
  return new RpcError(Status.ABORTED, "dispatcher is stopped");
}
