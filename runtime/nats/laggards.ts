/**
 * Which servers of a NATS cluster take clients and have stopped following the log, so that an operator learns which one to
 * look at. Seen from the log's leader: nobody else can tell for a server that answers nothing itself.
 *
 * B1: a server is named that the leader has called out of date for `laggingMsMin`, has not heard meanwhile, and that greets.
 *     One that catches up is heard; one that is down does not greet, and is counted as that (`BusServers`).
 */
import { callJetStream, type Fields, fieldsField, numberField, textField } from "./jetstream.ts";
import type { Link } from "./link.ts";
import { isLed, logStream, nanos } from "./streams.ts";

/** A follower is heard from each second while the log is idle; an election is over within this time. */
export const laggingMsMin = 10_000;
const lookMs = 5_000;
const callTimeoutMs = 2_000;

export interface Laggard {
  readonly name: string;
  /** For how long, in milliseconds. */
  readonly ms: number;
}

/** Names of followers that are out of date and that the leader has not heard for `laggingMsMin`, or not at all. */
export function unheardFollowers(info: Fields): readonly string[] {
  const { replicas } = fieldsField(info, "cluster");
  if (!isLed(info) || !Array.isArray(replicas)) return [];
  return (replicas as readonly Fields[]).flatMap((replica) => {
    const active = numberField(replica, "active");
    const isUnheard = active === 0 || active >= nanos(laggingMsMin);
    return replica["current"] !== true && isUnheard ? [textField(replica, "name")] : [];
  });
}

/** `before`: names and since when, in monotonic milliseconds. A look that the log's leader leaves unanswered changes nothing. */
export function laggingSince(
  before: ReadonlyMap<string, number>,
  look: { readonly at: number; readonly unheard: readonly string[] },
): ReadonlyMap<string, number> {
  return new Map(look.unheard.map((name) => [name, before.get(name) ?? look.at]));
}

export class Laggards {
  readonly #link: Link;
  #since: ReadonlyMap<string, number> = new Map();
  #greeting: readonly string[] = [];

  /** Looks until the link is closed; not at all where one server was named, which follows nobody. */
  constructor(link: Link) {
    this.#link = link;
    if (link.named > 1) this.#lookLater();
  }

  all(now: number): readonly Laggard[] {
    return [...this.#since].flatMap(([name, since]) =>
      now - since >= laggingMsMin && this.#greeting.includes(name) ? [{ name, ms: now - since }] : [],
    );
  }

  #lookLater(): void {
    setTimeout(() => void this.#look(), lookMs).unref();
  }

  async #look(): Promise<void> {
    if (this.#link.isClosed()) return;
    const found = await callJetStream(this.#link, `STREAM.INFO.${logStream}`, null, callTimeoutMs);
    if (found.kind === "ok" && isLed(found.body)) {
      this.#since = laggingSince(this.#since, { at: performance.now(), unheard: unheardFollowers(found.body) });
      this.#greeting = this.#since.size === 0 ? [] : await this.#link.greetingNames();
    }
    this.#lookLater();
  }
}
