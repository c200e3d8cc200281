/**
 * Followed output as a watcher's news: lines are buffered until they are requested.
 *
 * FO1: at most `keptBytesMax` and one delivery (256 KiB) are buffered. Beyond that the sender sees backpressure, as from a slow
 *      reader of a stream: the nodes are not read, and after two minutes without a request the watcher ends
 *      (actors/logs/home.ts).
 * FO2: each line is reported once, in order of arrival, also lines that came before the end.
 */
import { SubscribeLogsMessage, type LogMessage } from "../../../proto/gen/messages.ts";
import type { LogLines } from "../../../proto/log-lines.ts";
import type { News } from "../../../runtime/ports/json-watch.ts";
import type { Subscription } from "../../../runtime/ports/index.ts";
import type { RpcError, Sink } from "../../../runtime/ports/rpc.ts";
import { refusal } from "../feed/news.ts";
import { RequestError } from "../request-error.ts";
import type { Json } from "../results.ts";
import { isNotice, shownLine, textOf, type UnitNames } from "./output-lines.ts";

/** Limit of unrequested lines, in bytes as received. */
export const keptBytesMax = 512 * 1024;
/** Maximum characters of a reply, as for an all-watcher: stock clients accept 4 MiB in one message. */
const answerCharsMax = 1_000_000;
/** Size of a line in a reply without its text: ids, time and keys. */
const lineChars = 200;

export class FollowedOutput implements News<Json> {
  readonly sink: Sink<LogLines>;
  readonly #leaving = new AbortController();
  readonly #kept: LogLines[] = [];
  /** Lines of the oldest delivery that did not fit into the last reply; still counted. */
  #rest: LogMessage[] = [];
  #restBytes = 0;
  #keptBytes = 0;
  #end: { readonly error: RpcError | null } | null = null;
  #wake: (() => void) | null = null;

  readonly #unitNames: UnitNames;

  constructor(unitNames: UnitNames) {
    this.#unitNames = unitNames;
    this.sink = {
      write: (lines) => {
        if (this.#leaving.signal.aborted || lines.length === 0) return;
        this.#kept.push(lines);
        this.#keptBytes += lines.length;
        this.#wake?.();
      },
      end: (error) => {
        this.#end ??= { error: error ?? null };
        this.#wake?.();
      },
      // Always reached before the sender's own limit. FO1
      bufferedBytes: () => (this.#keptBytes < keptBytesMax ? 0 : Number.MAX_SAFE_INTEGER),
    };
  }

  /** Aborted once nobody will request output any more. */
  get signal(): AbortSignal {
    return this.#leaving.signal;
  }

  has(): boolean {
    return this.#keptBytes > 0;
  }

  isOver(): boolean {
    return this.#end !== null;
  }

  take(): Json {
    const lines: Json[] = [];
    const warnings: string[] = [];
    let room = answerCharsMax;
    for (;;) {
      const message = this.#next();
      if (message === null) break;
      const text = textOf(message);
      const chars = lineChars + JSON.stringify(text).length;
      if (chars > room && lines.length + warnings.length > 0) {
        this.#rest.unshift(message);
        break;
      }
      room -= chars;
      if (isNotice(message)) warnings.push(text.trimEnd());
      else lines.push(shownLine(message, this.#unitNames));
    }
    return { lines, warnings };
  }

  #next(): LogMessage | null {
    while (this.#rest.length === 0) {
      this.#keptBytes -= this.#restBytes;
      this.#restBytes = 0;
      const oldest = this.#kept.shift();
      if (oldest === undefined) return null;
      this.#restBytes = oldest.length;
      this.#rest = [...SubscribeLogsMessage.decode(oldest).messages];
    }
    return this.#rest.shift() ?? null;
  }

  wait(wake: () => void): Subscription {
    this.#wake = wake;
    return {
      unsubscribe: () => {
        if (this.#wake === wake) this.#wake = null;
      },
    };
  }

  release(): void {
    this.#leaving.abort();
    this.#kept.length = 0;
    this.#rest = [];
    this.#keptBytes = 0;
  }

  refusal(reason: Parameters<News<Json>["refusal"]>[0]): RequestError {
    if (reason !== "ended") return refusal(reason);
    const why = this.#end?.error?.message ?? "the output has ended";
    return new RequestError(`watcher has been stopped: ${why}`, "stopped");
  }
}
