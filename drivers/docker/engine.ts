/**
 * Client of a Docker Engine's socket: plain requests, streamed answers, and connections upgraded to a byte stream in both
 * directions (docs/adr: no client library).
 */
import { Agent, request as httpRequest, type ClientRequest, type IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";

/** The API of Docker 20.10, for which this driver was written. If an engine no longer supports it, its oldest is used. */
const apiVersionOldest = "1.41";
/** Timeout of immediate answers, in milliseconds; not for pulls, waits and streams. */
const answerMsMax = 30_000;
/** Bytes read of an error's body. */
const errorBytesMax = 64 * 1024;

export class EngineError extends Error {
  /** HTTP status; 0 if the engine was unreachable. */
  readonly status: number;

  constructor(status: number, text: string, options?: ErrorOptions) {
    super(text, options);
    this.status = status;
  }
}

interface EngineVersion {
  readonly Version: string;
  readonly ApiVersion: string;
  readonly MinAPIVersion?: string;
  readonly Os: string;
  readonly Arch: string;
}

type Query = Readonly<Record<string, string | number | boolean>>;

interface Options {
  readonly query?: Query;
  readonly body?: unknown;
  /** A tar archive, instead of a JSON body. */
  readonly archive?: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
  /** Maximum time between bytes of the answer, in milliseconds; null: unlimited. */
  readonly timeoutMs?: number | null;
  readonly signal?: AbortSignal;
}

function isNewer(one: string, other: string): boolean {
  const [major = 0, minor = 0] = one.split(".").map(Number);
  const [otherMajor = 0, otherMinor = 0] = other.split(".").map(Number);
  return major === otherMajor ? minor > otherMinor : major > otherMajor;
}

async function read(stream: IncomingMessage, bytesMax: number): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream) {
    chunks.push(chunk as Buffer);
    if ((size += (chunk as Buffer).length) > bytesMax) break;
  }
  return Buffer.concat(chunks).toString("utf8");
}

async function refusal(answer: IncomingMessage): Promise<EngineError> {
  const text = await read(answer, errorBytesMax).catch(() => "");
  try {
    return new EngineError(answer.statusCode ?? 0, (JSON.parse(text) as { message: string }).message);
  } catch {
    return new EngineError(
      answer.statusCode ?? 0,
      text === "" ? `the engine answered with status ${answer.statusCode}` : text,
    );
  }
}

export class Engine {
  readonly #target: { readonly socketPath: string } | { readonly host: string; readonly port: number };
  readonly #agent = new Agent({ keepAlive: true, maxFreeSockets: 16 });
  #api: Promise<string> | null = null;
  readonly endpoint: string;

  /** `endpoint`: `unix:///path` or `tcp://host:port`. Throws for any other. */
  constructor(endpoint: string) {
    this.endpoint = endpoint;
    const [, path] = /^unix:\/\/(\/.+)$/.exec(endpoint) ?? [];
    const [, host, port] = /^tcp:\/\/([^/:]+):(\d+)$/.exec(endpoint) ?? [];
    if (path !== undefined) this.#target = { socketPath: path };
    else if (host !== undefined && port !== undefined) this.#target = { host, port: Number(port) };
    else throw new Error(`invalid endpoint "${endpoint}": expected unix:///path or tcp://host:port`);
  }

  close(): void {
    this.#agent.destroy();
  }

  #request(method: string, path: string, options: Options): ClientRequest {
    const { archive, body, headers = {}, query = {}, signal } = options;
    const content = archive ?? Buffer.from(body === undefined ? "" : JSON.stringify(body));
    const type = archive === undefined ? "application/json" : "application/x-tar";
    const search = new URLSearchParams(
      Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]),
    ).toString();
    const asked = httpRequest({
      ...this.#target,
      agent: this.#agent,
      method,
      path: search === "" ? path : `${path}?${search}`,
      headers: {
        Host: "docker",
        ...(content.length === 0 ? {} : { "Content-Type": type }),
        "Content-Length": content.length,
        ...headers,
      },
      ...(signal === undefined ? {} : { signal }),
    });
    const { timeoutMs = answerMsMax } = options;
    if (timeoutMs !== null)
      asked.setTimeout(timeoutMs, () => asked.destroy(new Error(`no answer within ${timeoutMs / 1_000} s`)));
    asked.end(content);
    return asked;
  }

  /** The answer, with its body unread. Rejects with EngineError. */
  async #ask(method: string, path: string, options: Options): Promise<IncomingMessage> {
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      const asked = this.#request(method, path, options);
      asked.once("response", resolve);
      asked.once("error", (error) =>
        reject(new EngineError(0, `the engine at ${this.endpoint}: ${error.message}`, { cause: error })),
      );
    });
    if ((answer.statusCode ?? 0) >= 400) throw await refusal(answer);
    return answer;
  }

  async version(): Promise<EngineVersion> {
    const answer = await this.#ask("GET", "/version", {});
    return JSON.parse(await read(answer, Number.POSITIVE_INFINITY)) as EngineVersion;
  }

  /** Requested once; again after a failure. */
  #prefix(): Promise<string> {
    this.#api ??= this.version().then(
      ({ MinAPIVersion }) =>
        MinAPIVersion !== undefined && isNewer(MinAPIVersion, apiVersionOldest)
          ? `/v${MinAPIVersion}`
          : `/v${apiVersionOldest}`,
      (error: unknown) => {
        this.#api = null;
        throw error;
      },
    );
    return this.#api;
  }

  /** The answer's JSON; null if it is empty. Rejects with EngineError. */
  async json<Answer>(method: string, path: string, options: Options = {}): Promise<Answer> {
    const answer = await this.stream(method, path, options);
    try {
      const text = await read(answer, Number.POSITIVE_INFINITY);
      return (text === "" ? null : JSON.parse(text)) as Answer;
    } catch (error) {
      throw new EngineError(0, `the engine's answer was interrupted: ${(error as Error).message}`, { cause: error });
    }
  }

  /** A streamed answer. */
  async stream(method: string, path: string, options: Options = {}): Promise<IncomingMessage> {
    return this.#ask(method, `${await this.#prefix()}${path}`, options);
  }

  /** A connection upgraded to a byte stream in both directions. */
  async upgrade(path: string, body: unknown, query: Query = {}): Promise<Duplex> {
    const prefix = await this.#prefix();
    return new Promise((resolve, reject) => {
      const asked = this.#request("POST", `${prefix}${path}`, {
        body,
        query,
        headers: { Connection: "Upgrade", Upgrade: "tcp" },
        timeoutMs: null,
      });
      asked.once("upgrade", (_answer, socket, head) => {
        if (head.length > 0) socket.unshift(head);
        resolve(socket);
      });
      asked.once("response", (answer) => {
        void refusal(answer).then(reject);
      });
      asked.once("error", (error) => reject(new EngineError(0, error.message, { cause: error })));
    });
  }
}

/** Whether the requested object does not exist. */
export function isAbsent(error: unknown): boolean {
  return error instanceof EngineError && error.status === 404;
}

/** Whether the object's state does not allow the request, such as a signal to an exited container. */
export function isConflict(error: unknown): boolean {
  return error instanceof EngineError && error.status === 409;
}
