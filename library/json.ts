/**
 * `import … from "muster/json"`: a client of the JSON API (docs/json-api.md).
 *
 *     const api = await connectJson("wss://192.0.2.1:17070/", { ca: readFileSync("ca.pem") });
 *     await api.login("ada", password);
 *     for await (const { change, entity, kind } of api.watchAll()) console.log(kind, change, entity);
 */
import { once } from "node:events";
import { WebSocket } from "ws";

/** In milliseconds: connecting, and a request that is not answered. Waiting for changes has no limit. */
const timeoutMsDefault = 30_000;
/** The name in the certificates of managers, whatever their address. */
const serverName = "juju-apiserver";
/** The close code for messages that do not fit their type: RFC 6455, section 7.4.1. */
const invalidData = 1007;
const versions = { Admin: 3, Client: 6, AllWatcher: 3 } as const;

export interface JsonClientOptions {
  /** The cluster's root certificate in PEM, as `muster ca` prints it. */
  readonly ca: string | Uint8Array;
  /** Default 30,000. */
  readonly timeoutMs?: number;
}

/** A request of the API, with the fields of the newer message shape. */
export interface JsonRequest {
  /** The facade, such as `Application`. */
  readonly type: string;
  readonly version: number;
  readonly request: string;
  readonly params?: object;
  /** For facades of one object, such as a watcher. */
  readonly id?: string;
}

/** A change of one entity; a removed one has its ids only. */
export interface JsonChange {
  /** Such as `application`, `unit` or `machine`. */
  readonly kind: string;
  readonly change: "change" | "remove";
  readonly entity: Readonly<Record<string, unknown>>;
}

/** The manager rejected a request. */
export class JsonApiError extends Error {
  override readonly name = "JsonApiError";
  /** Such as `unauthorized access` or `not found`; empty if the manager gave none. */
  readonly code: string;
  constructor(message: string, code: string) {
    super(message);
    this.code = code;
  }
}

interface Reply {
  readonly "request-id": number;
  readonly error?: string;
  readonly "error-code"?: string;
  readonly response?: unknown;
}

interface Deltas {
  readonly deltas: readonly (readonly [kind: string, JsonChange["change"], JsonChange["entity"]])[];
}

interface Waiting {
  resolve(reply: Reply): void;
  reject(error: Error): void;
}

/** Rejects if the manager cannot be reached in time, or has no certificate of that root. */
export async function connectJson(url: string, options: JsonClientOptions): Promise<JsonClient> {
  const { ca, timeoutMs = timeoutMsDefault } = options;
  const tls = { ca: typeof ca === "string" ? ca : Buffer.from(ca), servername: serverName };
  const socket = new WebSocket(url, { ...tls, handshakeTimeout: timeoutMs });
  await once(socket, "open");
  return new JsonClient(socket, timeoutMs);
}

export class JsonClient {
  readonly #socket: WebSocket;
  readonly #timeoutMs: number;
  readonly #waiting = new Map<number, Waiting>();
  #requests = 0;
  #isClosed = false;
  /** Why the connection ends, if it did not end by a close frame. */
  #failure: Error | undefined;

  /** From `connectJson`. */
  constructor(socket: WebSocket, timeoutMs: number) {
    this.#socket = socket;
    this.#timeoutMs = timeoutMs;
    socket.on("message", (data: Buffer) => this.#receive(data.toString("utf8")));
    socket.on("error", (error) => void (this.#failure ??= error));
    socket.once("close", (code: number) => this.#end(code));
  }

  #receive(text: string): void {
    let reply: Reply;
    try {
      reply = JSON.parse(text) as Reply;
    } catch (error) {
      this.#failure = new Error("the manager sent a message that is not JSON", { cause: error });
      this.#socket.close(invalidData);
      return;
    }
    this.#waiting.get(reply["request-id"])?.resolve(reply);
    this.#waiting.delete(reply["request-id"]);
  }

  #end(code: number): void {
    this.#isClosed = true;
    for (const { reject } of this.#waiting.values())
      reject(new Error(`the connection to the manager was closed (code ${code})`, { cause: this.#failure }));
    this.#waiting.clear();
  }

  /** The response. Rejects with JsonApiError if the manager rejects the request, and with Error if the connection ends or it does not answer. */
  async request<Response = unknown>(request: JsonRequest): Promise<Response> {
    return this.#ask<Response>(request, this.#timeoutMs);
  }

  /** `timeoutMs`: null to wait for as long as the connection lives. */
  async #ask<Response>({ id = "", params = {}, request, type, version }: JsonRequest, timeoutMs: number | null) {
    if (this.#isClosed) throw new Error("the connection to the manager is closed: connect again");
    this.#requests += 1;
    const number = this.#requests;
    const answered = Promise.withResolvers<Reply>();
    this.#waiting.set(number, answered);
    const timer =
      timeoutMs === null
        ? undefined
        : setTimeout(() => {
            this.#waiting.delete(number);
            answered.reject(new Error(`the manager did not answer ${type}.${request} within ${timeoutMs} ms`));
          }, timeoutMs);
    this.#socket.send(JSON.stringify({ "request-id": number, type, version, request, id, params }));
    try {
      const reply = await answered.promise;
      if (reply.error !== undefined) throw new JsonApiError(reply.error, reply["error-code"] ?? "");
      return reply.response as Response;
    } finally {
      clearTimeout(timer);
    }
  }

  /** `user`: a name from `muster user add`. Rejects with JsonApiError. */
  async login(user: string, password: string): Promise<void> {
    const params = { "auth-tag": `user-${user}`, credentials: password };
    await this.request({ type: "Admin", version: versions.Admin, request: "Login", params });
  }

  /**
   * All entities, and then every change, until the caller leaves the loop or aborts. Rejects with Error if the connection ends
   * first.
   */
  async *watchAll({ signal }: { readonly signal?: AbortSignal } = {}): AsyncGenerator<JsonChange, void, undefined> {
    const { "watcher-id": id } = await this.request<{ readonly "watcher-id": string }>({
      type: "Client",
      version: versions.Client,
      request: "WatchAll",
    });
    const watcher = { type: "AllWatcher", version: versions.AllWatcher, id } as const;
    // A stopped watcher answers the request that waits for changes.
    let stopped: Promise<unknown> | undefined;
    const stop = (): void => void (stopped ??= this.request({ ...watcher, request: "Stop" }).catch(() => undefined));
    signal?.addEventListener("abort", stop);
    try {
      while (signal?.aborted !== true) {
        const { deltas } = await this.#ask<Deltas>({ ...watcher, request: "Next" }, null);
        for (const [kind, change, entity] of deltas) yield { kind, change, entity };
      }
    } catch (error) {
      if (signal?.aborted !== true) throw error;
    } finally {
      signal?.removeEventListener("abort", stop);
      stop();
      await stopped;
    }
  }

  /** Ends all requests and watchers that are waiting. */
  close(): void {
    this.#socket.close();
  }
}
