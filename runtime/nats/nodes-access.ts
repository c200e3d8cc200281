/**
 * Admission to a manager's NATS for nodes: answers nats-server's authorization callout, and ends connections.
 *
 * NA1: a node publishes and subscribes to nothing but its own subjects, of which it may not publish its answers; a site's leaf node
 *      likewise to those of its site.
 * NA2: every open connection of a node was admitted by this object, and its end is known: when the manager's own connection to the
 *      server was away, all of them are closed, and nodes connect again.
 */
import { encodeAuthorizationResponse, encodeUser, fromPublic, type KeyPair } from "@nats-io/jwt";
import type { Logger, Subscription } from "../ports/index.ts";
import { nodeSubjects, siteSubjects } from "../subjects.ts";
import { textOf } from "./errors.ts";
import type { Link } from "./link.ts";
import { nodesAccount } from "./nodes-server.ts";

export { createUser, type KeyPair } from "@nats-io/jwt";

/** One client's attempt to connect. */
export interface ConnectAttempt {
  /** The server's number of the connection. */
  readonly connection: number;
  /** IP address of the client. */
  readonly address: string;
  readonly token: string;
  readonly signature: string;
  readonly nonce: string;
  /** Empty for a node. */
  readonly user: string;
  readonly password: string;
}

export type Admitted =
  | { readonly kind: "refused"; readonly reason: string }
  /** It may try again: its connection is closed, without the error by which nats-server rejects credentials. */
  | { readonly kind: "postponed" }
  /** `as`: whose subjects it may use. `untilMs`: the server then closes the connection; null: never. */
  | {
      readonly kind: "admitted";
      readonly as: { readonly kind: "node"; readonly id: string } | { readonly kind: "site"; readonly site: string };
      readonly untilMs: number | null;
    };

interface NodesAccessOptions {
  readonly log: Logger;
  /** A connection in the server's system account. */
  readonly link: Link;
  /** The account key whose signature the server accepts. */
  readonly issuer: KeyPair;
  /** The manager's own user of the nodes' account, which this object does not close. */
  readonly ownUser: string;
  readonly admit: (attempt: ConnectAttempt) => Admitted;
  /** The connection has ended; called once for each that was admitted. */
  readonly onGone: (connection: number) => void;
}

/** Subscriptions of a node's connection: its links, of which a node may have eight, and some that it has ended. */
const subscriptionsMax = 32;
/** The same for a leaf node's: links of all nodes at its site. */
const siteSubscriptionsMax = 16_384;
const callTimeoutMs = 5_000;
const calloutSubject = "$SYS.REQ.USER.AUTH";
const text = new TextDecoder();

interface Request {
  readonly server_id: { readonly id: string };
  readonly user_nkey: string;
  readonly client_info: { readonly id: number; readonly host: string; readonly nonce: string; readonly type: string };
  readonly connect_opts: {
    readonly auth_token: string;
    readonly sig: string;
    readonly user: string;
    readonly pass: string;
  };
}

/**
 * The claims of the server's token. Its signature is not verified: in the account of this link, nobody but the server can publish the
 * callout's subject. Throws SyntaxError and TypeError.
 */
function requestOf(token: string): Request {
  const [, claims = ""] = token.split(".");
  return (JSON.parse(Buffer.from(claims, "base64url").toString()) as { readonly nats: Request }).nats;
}

export class NodesAccess {
  readonly #options: NodesAccessOptions;
  readonly #open = new Set<number>();
  readonly #subscriptions: readonly Subscription[];
  #serverId = "";

  constructor(options: NodesAccessOptions) {
    this.#options = options;
    const { link } = options;
    this.#subscriptions = [
      link.subscribe(calloutSubject, (message) => {
        void this.#answer(message.data).then(
          (answer) => link.publish(message.reply ?? "", answer),
          // Without an answer, the server refuses the client.
          (error: unknown) => options.log.warn({ reason: textOf(error) }, "cannot answer the callout of nats-server"),
        );
      }),
      link.subscribe(`$SYS.ACCOUNT.${nodesAccount}.DISCONNECT`, ({ data }) => this.#disconnected(data)),
      link.onConnection((isConnected) => {
        if (isConnected) void this.#closeAll();
      }),
    ];
  }

  /** Closes a connection at once. */
  close(connection: number): void {
    void this.#kick(connection);
  }

  stop(): void {
    for (const each of this.#subscriptions) each.unsubscribe();
  }

  async #answer(data: Uint8Array): Promise<Uint8Array> {
    const { issuer } = this.#options;
    const request = requestOf(text.decode(data));
    const { client_info: client, connect_opts: given, server_id: server } = request;
    if (server.id !== this.#serverId) this.#forget();
    this.#serverId = server.id;
    const admitted = this.#options.admit({
      connection: client.id,
      address: client.host,
      token: given.auth_token ?? "",
      signature: given.sig ?? "",
      nonce: client.nonce ?? "",
      user: given.user ?? "",
      password: given.pass ?? "",
    });
    // At once: the client may leave before the answer.
    if (admitted.kind === "admitted") this.#open.add(client.id);
    // It is gone when the answer arrives.
    if (admitted.kind === "postponed") await this.#kick(client.id);
    const user = fromPublic(request.user_nkey);
    const answer =
      admitted.kind === "admitted"
        ? { jwt: await this.#userOf(request.user_nkey, admitted) }
        : { error: admitted.kind === "refused" ? admitted.reason : "connect later" };
    const encoded = await encodeAuthorizationResponse(user, fromPublic(server.id), issuer, answer, {});
    return new TextEncoder().encode(encoded);
  }

  /** NA1 */
  #userOf(key: string, { as, untilMs }: Extract<Admitted, { kind: "admitted" }>): Promise<string> {
    const { receives, sends } = as.kind === "node" ? nodeSubjects(as.id) : siteSubjects(as.site);
    const subs = as.kind === "node" ? subscriptionsMax : siteSubscriptionsMax;
    return encodeUser(
      as.kind === "node" ? as.id : as.site,
      fromPublic(key),
      this.#options.issuer,
      { pub: { allow: [sends], deny: [] }, sub: { allow: [receives], deny: [] }, subs },
      { aud: nodesAccount, ...(untilMs === null ? {} : { exp: Math.floor(untilMs / 1_000) }) },
    );
  }

  #disconnected(data: Uint8Array): void {
    const event = JSON.parse(text.decode(data)) as {
      readonly server?: { readonly id?: string };
      readonly client?: { readonly id?: number };
    };
    if (event.server?.id === this.#serverId) this.#gone(event.client?.id ?? 0);
  }

  #gone(connection: number): void {
    if (this.#open.delete(connection)) this.#options.onGone(connection);
  }

  #forget(): void {
    for (const connection of Array.from(this.#open)) this.#gone(connection);
  }

  async #kick(connection: number): Promise<void> {
    await this.#call(`$SYS.REQ.SERVER.${this.#serverId}.KICK`, { cid: connection });
    this.#gone(connection);
  }

  /** NA2: ends of connections may have been missed. */
  async #closeAll(): Promise<void> {
    this.#forget();
    const answer = await this.#call("$SYS.REQ.SERVER.PING.CONNZ", { acc: nodesAccount, auth: true, limit: 100_000 });
    const found = answer as {
      readonly server?: { readonly id?: string };
      readonly data?: { readonly connections?: readonly { readonly cid: number; readonly authorized_user?: string }[] };
    } | null;
    if (found === null) return;
    this.#serverId = found.server?.id ?? this.#serverId;
    for (const { authorized_user: user, cid } of found.data?.connections ?? [])
      if (user !== this.#options.ownUser) await this.#kick(cid);
  }

  /** Null without an answer. */
  async #call(subject: string, question: object): Promise<unknown> {
    const data = new TextEncoder().encode(JSON.stringify(question));
    const answer = await this.#options.link.request(subject, data, { timeoutMs: callTimeoutMs });
    if (answer.kind === "reply") return JSON.parse(text.decode(answer.message.data));
    this.#options.log.warn({ subject, outcome: answer.kind }, "the NATS for nodes does not answer");
    return null;
  }
}
