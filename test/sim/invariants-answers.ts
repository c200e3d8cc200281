/**
 * What must hold of the answers that clients get. Each call carries a trace of its own, which the log keeps beside what the
 * call has changed, so that any client's any call can be held to what became of it.
 *
 * S120: what was refused did not happen: no transaction, before or after, has a change of a call that was refused.
 * S121: what was acknowledged did: whoever is told that something was created finds that in the log.
 */
import type { Commit } from "../../runtime/store/store.ts";
import { RpcError, Status } from "../../runtime/rpc.ts";

/** An answer that says nothing of whether it was done. */
const doubtful: ReadonlySet<Status> = new Set([
  Status.CANCELLED,
  Status.UNKNOWN,
  Status.DEADLINE_EXCEEDED,
  Status.ABORTED,
  Status.INTERNAL,
]);

/** Of an answer that says itself that it was not, or that it may have been. */
const untaken = "no leader accepted the change in time";
const doubt = "may still happen";

export function isRefusal(error: unknown): boolean {
  if (!(error instanceof RpcError) || doubtful.has(error.code)) return false;
  return error.code !== Status.UNAVAILABLE || (error.message.startsWith(untaken) && !error.message.includes(doubt));
}

export class Answers {
  readonly #onWrong: (claim: string) => void;
  /** By trace: the version at which the call first changed something. */
  readonly #done = new Map<string, number>();
  /** By trace: what was refused. */
  readonly #refused = new Map<string, string>();
  #calls = 0;

  constructor(onWrong: (claim: string) => void) {
    this.#onWrong = onWrong;
  }

  /** A W3C trace context for one call. */
  begin(): string {
    this.#calls += 1;
    const number = this.#calls.toString(16);
    return `00-${number.padStart(32, "0")}-${number.padStart(16, "0")}-00`;
  }

  refused(traceparent: string, what: string): void {
    const trace = traceOf(traceparent);
    const version = this.#done.get(trace);
    if (version !== undefined) this.#onWrong(`S120: "${what}" was refused, and is in version ${version}`);
    this.#refused.set(trace, what);
  }

  acknowledged(traceparent: string, what: string): void {
    if (!this.#done.has(traceOf(traceparent))) this.#onWrong(`S121: "${what}" was acknowledged, and is in no version`);
  }

  /** Told each transaction, by every replica. */
  observe({ causes, version }: Commit): void {
    for (const { caller, traceparent } of causes) {
      // What follows from a call, and is written by the cluster itself, carries its trace as well.
      if (caller === null || traceparent === "") continue;
      const trace = traceOf(traceparent);
      if (!this.#done.has(trace)) this.#done.set(trace, version);
      const what = this.#refused.get(trace);
      if (what !== undefined) this.#onWrong(`S120: "${what}" was refused, and is done in version ${version}`);
    }
  }
}

function traceOf(traceparent: string): string {
  return traceparent.slice(3, 35);
}
