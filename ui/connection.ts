/** The page's WebSocket: calls over it, and new connections after it was lost. */
import { backoffMs, type Backoff } from "../lib/backoff.ts";
import { UiHello, UiRequest, UiResponse, type MethodDescriptor } from "../proto/gen/page.ts";

export type Link =
  | { readonly state: "connecting" }
  | { readonly state: "live"; readonly hello: UiHello }
  /** `retryAtMs`: by `Date.now()`. `reason`: the server's sentence; empty if it said nothing. */
  | { readonly state: "lost"; readonly retryAtMs: number; readonly reason: string }
  /** The cookie is not accepted any more. `logsIn`: the server shows a login form instead of the page. */
  | { readonly state: "expired"; readonly logsIn: boolean };

interface CallEvents<Response> {
  onMessage(response: Response): void;
  onEnd(status: number, error: string): void;
}

/** Before a new connection: soon at first, then up to a wait that an operator who watches accepts. */
const reconnecting: Backoff = { stepMs: 500, msMax: 10_000 };
/** Statuses of a request without a session: the server checks the cookie of each file. */
const refusals: readonly number[] = [401, 403];

export class Connection {
  readonly #onLink: (link: Link) => void;
  #socket: WebSocket | null = null;
  #calls = new Map<number, { readonly take: (bytes: Uint8Array) => void; readonly end: CallEvents<never>["onEnd"] }>();
  #nextCall = 1;
  /** Connections in a row without a hello. */
  #failures = 0;
  #logsIn = false;

  constructor(onLink: (link: Link) => void) {
    this.#onLink = onLink;
    this.#open();
  }

  #open(): void {
    this.#onLink({ state: "connecting" });
    const { protocol, host } = window.location;
    const socket = new WebSocket(`${protocol === "https:" ? "wss" : "ws"}://${host}/ws`);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) =>
      this.#take(UiResponse.decode(new Uint8Array(data as ArrayBuffer))),
    );
    socket.addEventListener("close", ({ reason }) => void this.#lost(reason));
  }

  #take(response: UiResponse): void {
    if (response.call === 0) {
      this.#failures = 0;
      const hello = UiHello.decode(response.message);
      this.#logsIn = hello.canLogOut;
      this.#onLink({ state: "live", hello });
      return;
    }
    const call = this.#calls.get(response.call);
    if (response.hasMessage) call?.take(response.message);
    if (!response.end) return;
    this.#calls.delete(response.call);
    call?.end(response.status, response.error);
  }

  async #lost(reason: string): Promise<void> {
    this.#socket = null;
    this.#calls.clear();
    this.#failures += 1;
    const retryAtMs = Date.now() + backoffMs(reconnecting, this.#failures);
    this.#onLink({ state: "lost", retryAtMs, reason });
    // A browser does not tell why a WebSocket was refused, but it does for a file.
    const refused = await fetch(window.location.pathname, { method: "HEAD", cache: "no-store" }).then(
      ({ status }) => refusals.includes(status),
      () => false,
    );
    if (refused) {
      this.#onLink({ state: "expired", logsIn: this.#logsIn });
      return;
    }
    setTimeout(() => this.#open(), Math.max(0, retryAtMs - Date.now()));
  }

  /** A call that ends with the connection, without `onEnd`. Returns a function that cancels it. */
  call<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    { onMessage, onEnd }: CallEvents<Response>,
  ): () => void {
    const call = this.#nextCall++;
    this.#calls.set(call, { take: (bytes) => onMessage(method.response.decode(bytes)), end: onEnd });
    this.#send({ call, method: method.path, message: method.request.encode(request) });
    return () => {
      if (this.#calls.delete(call)) this.#send({ call, cancel: true });
    };
  }

  #send(request: Partial<UiRequest>): void {
    this.#socket?.send(UiRequest.encode(UiRequest.create(request)));
  }
}
