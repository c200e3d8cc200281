/**
 * `/model/UUID/log`, the endpoint of Juju's `debug-log`: one message per line of task output, without requests. It is an
 * ordinary client of the API: it logs in with the handshake's credentials and requests the lines from the Muster facade.
 *
 * connecting -> logging in -> reading (requests more when everything is sent) -> closed
 *
 * D1: the first message reports the start: `{}`, or the error, after which the connection ends (reference §5.1).
 * D2: no more lines are requested while the client has unread output.
 */
import type { Wire } from "./connection.ts";
import { unitTag } from "./entities/names.ts";
import { RequestError } from "./request-error.ts";
import { identifiersInCookies } from "./tickets.ts";

/** In Juju's order. Standard output of tasks is INFO, standard error WARNING. */
const levels = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] as const;
type Level = (typeof levels)[number];
const levelOf = { stdout: "INFO", stderr: "WARNING" } as const satisfies Record<string, Level>;

/** Last lines of each unit: the default of `debug-log`, and the maximum. */
const backlogDefault = 10;
const replayMax = 10_000;
const patternsMax = 100;

/** The parsed query. */
interface LogFilter {
  readonly isMeant: (tag: string, stream: string) => boolean;
  /** Lines of each unit before now. */
  readonly backlog: number;
  /** RFC 3339; may be empty. */
  readonly since: string;
  readonly follows: boolean;
  /** Ends after this many lines; null: never. */
  readonly linesMax: number | null;
}

export interface LogArrival {
  /** From the handshake; may be empty. */
  readonly authorization: string;
  /** May contain macaroons, in place of a password. */
  readonly cookie: string;
  /** The URL's query, without the question mark. */
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

/** Matches tags against patterns, in which `*` matches any text. Throws RequestError. */
function matching(patterns: readonly string[]): (text: string) => boolean {
  if (patterns.length > patternsMax) throw new RequestError(`more than ${patternsMax} filters`, "quota limit exceeded");
  // Literal parts are searched from left to right, so the time is linear in the text for every pattern.
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
  if (least < 0) throw new RequestError(`unknown level: expected one of ${levels.join(", ")}`, "bad request");
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
      // Lines have no labels.
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

/** Stands between a WebSocket and its connection, and turns the connection's replies into lines. */
export class DebugLog implements Wire {
  readonly #wire: Wire;
  readonly #take: (text: string) => void;
  readonly #arrival: LogArrival;
  #filter: LogFilter | null = null;
  #watcher = "";
  #asked = logsId;
  #sent = 0;
  #isPaused = false;
  /** A page is sent, and the next one is not requested yet. */
  #isDue = false;

  /** `take`: the connection's method. */
  constructor(wire: Wire, arrival: LogArrival, take: (text: string) => void) {
    this.#wire = wire;
    this.#arrival = arrival;
    this.#take = take;
  }

  /** Call after the connection is open. */
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
    this.#sendLines(filter, reply.response.lines ?? []);
  }

  #sendLines(filter: LogFilter, lines: readonly Line[]): void {
    for (const { unit, time, stream, text } of lines) {
      const tag = unitTag(unit);
      if (!filter.isMeant(tag, stream)) continue;
      const message = { tag, ts: time, sev: levelOf[stream], mod: stream, loc: "", msg: text.replace(/\r?\n$/, "") };
      this.#wire.send(JSON.stringify(message));
      this.#sent += 1;
      if (this.#sent === filter.linesMax) return this.close(1000, "");
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
    throw new Error("D1: requests of the log endpoint never get a shared reply");
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
