/**
 * Invariants of the answers that clients get. Each call has its own trace, which the log stores with the call's changes, so
 * that every answer can be compared with the call's effects.
 *
 * S120: a refused call has no effect: no transaction, before or after the answer, contains one of its changes.
 * S121: an acknowledged call has its effect: an object whose creation was acknowledged is in the log.
 */
import type { Commit } from "../../runtime/store/store.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";

/** Status codes that leave the outcome open. */
const doubtful: ReadonlySet<Status> = new Set([
  Status.CANCELLED,
  Status.UNKNOWN,
  Status.DEADLINE_EXCEEDED,
  Status.ABORTED,
  Status.INTERNAL,
]);

/** Texts of answers that exclude the change, or leave it open. */
const untaken = "no leader accepted the change in time";
const doubt = "may still happen";

export function isRefusal(error: unknown): boolean {
  if (!(error instanceof RpcError) || doubtful.has(error.code)) return false;
  return error.code !== Status.UNAVAILABLE || (error.message.startsWith(untaken) && !error.message.includes(doubt));
}

export class Answers {
  readonly #onWrong: (claim: string) => void;
  /** By trace: the version of the call's first change. */
  readonly #done = new Map<string, number>();
  /** By trace: the refused calls. */
  readonly #refused = new Map<string, string>();

  constructor(onWrong: (claim: string) => void) {
    this.#onWrong = onWrong;
  }

  refused(traceparent: string, what: string): void {
    const trace = traceOf(traceparent);
    const version = this.#done.get(trace);
    if (version !== undefined) this.#onWrong(`S120: "${what}" was refused but is in version ${version}`);
    this.#refused.set(trace, what);
  }

  acknowledged(traceparent: string, what: string): void {
    if (!this.#done.has(traceOf(traceparent))) this.#onWrong(`S121: "${what}" was acknowledged but is in no version`);
  }

  /** Called with each transaction, by every replica. */
  observe({ causes, version }: Commit): void {
    for (const { caller, traceparent } of causes) {
      // Consequences of a call, which the cluster writes itself, carry its trace as well.
      if (caller === null || traceparent === "") continue;
      const trace = traceOf(traceparent);
      if (!this.#done.has(trace)) this.#done.set(trace, version);
      const what = this.#refused.get(trace);
      if (what !== undefined) this.#onWrong(`S120: "${what}" was refused but was applied in version ${version}`);
    }
  }
}

function traceOf(traceparent: string): string {
  return traceparent.slice(3, 35);
}
