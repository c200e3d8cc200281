/**
 * `/model/UUID/log`, where Juju's `debug-log` reads: one message for each line that tasks have written, without requests. It is a
 * client of the API like others: it logs in with what the handshake said, and asks the Muster facade for the lines.
 *
 * connecting -> logging in -> reading (asks for more when all before is sent) -> closed
 *
 * D1: the first message says whether it begins: `{}`, or the error after which it ends (reference §5.1).
 * D2: no more is asked for while the client has not taken what there is.
 */
import type { Wire } from "./connection.ts";
import { unitTag } from "./entities/names.ts";
import { RequestError } from "./request-error.ts";
import { identifiersInCookies } from "./tickets.ts";

/** Juju's order. What tasks write on their standard output is INFO, on their standard error WARNING. */
const levels = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] as const;
type Level = (typeof levels)[number];
const levelOf = { stdout: "INFO", stderr: "WARNING" } as const satisfies Record<string, Level>;

/** Of each unit, from its end: what `debug-log` shows unless it is told, and all that there may be. */
const backlogDefault = 10;
const replayMax = 10_000;
const patternsMax = 100;

/** What the query asks for. */
export interface LogFilter {
  readonly isMeant: (tag: string, stream: string) => boolean;
  /** Lines of each unit before now. */
  readonly backlog: number;
  /** RFC 3339, or empty. */
  readonly since: string;
  readonly follows: boolean;
  /** After so many it ends; null: never. */
  readonly linesMax: number | null;
}

export interface LogArrival {
  /** Of the handshake; may be empty. */
  readonly authorization: string;
  /** May hold macaroons, for want of a password. */
  readonly cookie: string;
  /** Behind the path, without the question mark. */
  readonly query: string;
}

interface Line {
  readonly unit: string;
  readonly time: string;
  readonly stream: keyof typeof levelOf;
  readonly text: string;
}

interface Reply {
  readonly "request-id": number;
  readonly error?: string;
  readonly "error-code"?: string;
  readonly response: { readonly lines?: readonly Line[]; readonly "watcher-id"?: string };
}

const loginId = 1;
const logsId = 2;

/** Tags with `*` for anything. Throws RequestError. */
function matching(patterns: readonly string[]): (text: string) => boolean {
  if (patterns.length > patternsMax) throw new RequestError(`more than ${patternsMax} filters`, "quota limit exceeded");
  // Word for word, and what lies between is found from left to right: no pattern takes longer than the text.
  const parts = patterns.map((pattern) => pattern.split("*"));
  return (text) => parts.some((words) => matches(text, words));
}

function matches(text: string, words: readonly string[]): boolean {
  const [first = "", ...rest] = words;
  const last = rest.pop();
  if (last === undefined) return text === first;
  if (!text.startsWith(first) || text.length < first.length + last.length || !text.endsWith(last)) return false;
  let at = first.length;
  for (const word of rest) {
    const found = text.indexOf(word, at);
    if (found < 0) return false;
    at = found + word.length;
  }
  return at <= text.length - last.length;
}

function count(query: URLSearchParams, name: string): number | null {
  const text = query.get(name);
  if (text === null) return null;
  if (!/^\d{1,9}$/.test(text)) throw new RequestError(`${name} ${JSON.stringify(text)} is not a number`, "bad request");
  return Number(text);
}

/** Throws RequestError. */
export function readFilter(text: string): LogFilter {
  const query = new URLSearchParams(text);
  const level = query.get("level") ?? "TRACE";
  const least = (levels as readonly string[]).indexOf(level);
  if (least < 0) throw new RequestError(`level is one of ${levels.join(", ")}`, "bad request");
  const list = (name: string): ((text: string) => boolean) | null => {
    const patterns = query.getAll(name);
    return patterns.length === 0 ? null : matching(patterns);
  };
  const [entities, modules, labels] = [list("includeEntity"), list("includeModule"), list("includeLabel")];
  const [notEntities, notModules] = [list("excludeEntity"), list("excludeModule")];
  return {
    isMeant: (tag, stream) =>
      levels.indexOf(levelOf[stream as keyof typeof levelOf] ?? "INFO") >= least &&
      (entities?.(tag) ?? true) &&
      (modules?.(stream) ?? true) &&
      // A line has no labels.
      labels === null &&
      !(notEntities?.(tag) ?? false) &&
      !(notModules?.(stream) ?? false),
    backlog:
      query.get("replay") === "true" ? replayMax : Math.min(replayMax, count(query, "backlog") ?? backlogDefault),
    since: query.get("startTime") ?? "",
    follows: query.get("noTail") !== "true",
    linesMax: count(query, "maxLines") || null,
  };
}

/** The name and password of an `Authorization: Basic` header; both empty without one. */
function credentialsOf(authorization: string): readonly [string, string] {
  const [, encoded = ""] = /^Basic ([A-Za-z0-9+/=]+)$/i.exec(authorization) ?? [];
  const text = Buffer.from(encoded, "base64").toString("utf8");
  const colon = text.indexOf(":");
  return colon < 0 ? ["", ""] : [text.slice(0, colon), text.slice(colon + 1)];
}

/** Stands between a WebSocket and its connection: what the connection answers becomes lines. */
export class DebugLog implements Wire {
  readonly #wire: Wire;
  readonly #take: (text: string) => void;
  readonly #arrival: LogArrival;
  #filter: LogFilter | null = null;
  #watcher = "";
  #asked = logsId;
  #told = 0;
  #isPaused = false;
  /** A page has been told, and the next one is not asked for yet. */
  #isDue = false;

  /** `take`: the connection's. */
  constructor(wire: Wire, arrival: LogArrival, take: (text: string) => void) {
    this.#wire = wire;
    this.#arrival = arrival;
    this.#take = take;
  }

  /** Once the connection knows that it is open. */
  begin(): void {
    try {
      this.#filter = readFilter(this.#arrival.query);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      return this.#refuse(error.message, error.code);
    }
    const [tag, credentials] = credentialsOf(this.#arrival.authorization);
    const macaroons = identifiersInCookies(this.#arrival.cookie).map((identifier) => [{ identifier }]);
    const params = { "auth-tag": tag, credentials, macaroons };
    this.#ask(loginId, { type: "Admin", version: 3, request: "Login", params });
  }

  #ask(id: number, request: object): void {
    this.#take(JSON.stringify({ "request-id": id, ...request }));
  }

  send(text: string): void {
    const reply = JSON.parse(text) as Reply;
    const filter = this.#filter;
    if (filter === null) return;
    if (reply["request-id"] === loginId) {
      if (reply.error !== undefined) return this.#refuse(reply.error, reply["error-code"] ?? "");
      const { backlog: tail, since, follows } = filter;
      const params = { all: true, tail, since };
      return this.#ask(logsId, { type: "Muster", version: 1, request: follows ? "WatchLogs" : "Logs", params });
    }
    if (reply["request-id"] === logsId) {
      if (reply.error !== undefined) return this.#refuse(reply.error, reply["error-code"] ?? "");
      this.#wire.send("{}\n");
      this.#watcher = reply.response["watcher-id"] ?? "";
    } else if (reply.error !== undefined) {
      return this.close(1000, reply.error);
    }
    this.#tell(filter, reply.response.lines ?? []);
  }

  #tell(filter: LogFilter, lines: readonly Line[]): void {
    for (const { unit, time, stream, text } of lines) {
      const tag = unitTag(unit);
      if (!filter.isMeant(tag, stream)) continue;
      const message = { tag, ts: time, sev: levelOf[stream], mod: stream, loc: "", msg: text.replace(/\r?\n$/, "") };
      this.#wire.send(JSON.stringify(message));
      this.#told += 1;
      if (this.#told === filter.linesMax) return this.close(1000, "");
    }
    if (!filter.follows) return this.close(1000, "");
    this.#isDue = true;
    this.#next();
  }

  /** D2 */
  #next(): void {
    if (!this.#isDue || this.#isPaused) return;
    this.#isDue = false;
    this.#asked += 1;
    this.#ask(this.#asked, { type: "LogsWatcher", version: 1, id: this.#watcher, request: "Next" });
  }

  #refuse(message: string, code: string): void {
    this.#filter = null;
    this.#wire.send(`${JSON.stringify({ error: { message, code } })}\n`);
    this.close(1000, "");
  }

  sendShared(): void {
    throw new Error("D1: nothing that is asked for here has a shared answer");
  }

  ping(): void {
    this.#wire.ping();
  }

  pause(): void {
    this.#isPaused = true;
    this.#wire.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#wire.resume();
    this.#next();
  }

  loggedIn(): void {
    this.#wire.loggedIn();
  }

  unsentBytes(): number {
    return this.#wire.unsentBytes();
  }

  close(code: number, reason: string): void {
    this.#filter = null;
    this.#wire.close(code, reason);
  }

  cut(): void {
    this.#wire.cut();
  }
}
