/** The `Bus` port on core NATS. */
import { headers as newHeaders, type Msg, type MsgHdrs } from "nats";
import type { Bus, BusMessage, Headers, RequestOutcome, Subscription } from "../ports/index.ts";
import type { Link } from "./link.ts";

export class NatsBus implements Bus {
  readonly #link: Link;

  constructor(link: Link) {
    this.#link = link;
  }

  /** Messages are dropped while there is no connection: what must not be lost goes by request or into the log. */
  publish(subject: string, data: Uint8Array, headers?: Headers): void {
    this.#link.publish(subject, data, toNats(headers));
  }

  subscribe(subject: string, handler: (message: BusMessage) => void, queue?: string): Subscription {
    return this.#link.subscribe(subject, (message) => handler(new NatsBusMessage(message, this.#link)), queue);
  }

  async request(
    subject: string,
    data: Uint8Array,
    options: { timeoutMs: number; headers?: Headers },
  ): Promise<RequestOutcome> {
    const answer = await this.#link.request(subject, data, {
      timeoutMs: options.timeoutMs,
      headers: toNats(options.headers),
    });
    return answer.kind === "reply" ? { kind: "reply", data: answer.message.data } : answer;
  }

  isUp(): boolean {
    return this.#link.isUp();
  }

  onLink(listener: (up: boolean) => void): Subscription {
    return this.#link.onUp(listener);
  }
}

/** Decodes on demand: most handlers never read headers. */
class NatsBusMessage implements BusMessage {
  readonly #message: Msg;
  readonly #link: Link;

  constructor(message: Msg, link: Link) {
    this.#message = message;
    this.#link = link;
  }

  get subject(): string {
    return this.#message.subject;
  }

  get data(): Uint8Array {
    return this.#message.data;
  }

  get headers(): Headers {
    const found: Record<string, string> = {};
    for (const [name, values] of this.#message.headers ?? []) found[name] = values[0] ?? "";
    return found;
  }

  /** Replies through the link, because the message's own connection may be closed by the time there is an answer. */
  respond(data: Uint8Array): void {
    const { reply } = this.#message;
    if (reply !== undefined && reply !== "") this.#link.publish(reply, data);
  }
}

/** Creates no header object for a message without headers. Exact case: look-ups are case-sensitive everywhere. */
function toNats(headers: Headers | undefined): MsgHdrs | undefined {
  if (headers === undefined) return undefined;
  let created: MsgHdrs | undefined;
  for (const name in headers) (created ??= newHeaders()).set(name, headers[name] ?? "");
  return created;
}
