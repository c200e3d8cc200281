/**
 * The admission of clients to a manager's NATS for nodes, and the ends of their connections.
 *
 * AD1: a connection is admitted for the node whose certificate's key signed the challenge, for one that joins and knows a token, or for
 *      the site whose password it shows.
 * AD2: a node's connections are limited, as are a site's and those of all that join: one more ends the oldest.
 * AD3: a node's connections end when its standing does, and those of one that floods, which then waits to connect again. A site's end
 *      when the worker's join token is replaced, of which its password is derived.
 */
import type { Refusals } from "../edges/grpc/admission/refusals.ts";
import type { NodeCalls } from "../edges/grpc/node-calls.ts";
import { isSignedBy, knowsToken, readClaim } from "../lib/pki/presented.ts";
import { isSitePassword } from "../lib/pki/site-password.ts";
import type { Admitted, ConnectAttempt } from "../runtime/nats/nodes-access.ts";
import type { Clock, Logger } from "../runtime/ports/index.ts";
import type { Peer } from "../runtime/ports/rpc.ts";

/** A node has one connection for its session, and one while it renews its certificate. */
export const connectionsPerNodeMax = 8;
/** A site has one for each of its leaf nodes, or, without any, for each of its nodes and one more while that renews its certificate. */
export const connectionsPerSiteMax = 2_048;
/** Connections of nodes that join. */
export const joinersMax = 1_000;
/** For the last frames to a node whose connection is closed, in milliseconds. */
const closeGraceMs = 100;
/** A node that floods may not connect for that long, in milliseconds. */
export const floodPauseMs = 30_000;

interface NodesAdmissionOptions {
  readonly calls: Pick<NodeCalls, "gate" | "identify">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly refusals: Pick<Refusals, "count">;
  /** The cluster's join tokens; one that does not exist is empty. */
  readonly tokens: () => { readonly worker: string; readonly manager: string };
  /** SHA-256 of each certificate that the server may show. */
  readonly fingerprints: () => readonly string[];
  /** Closes a connection of the server. */
  readonly disconnect: (connection: number) => void;
  /** The last connection of that node, or of one that joins, has ended. */
  readonly onLeft: (id: string) => void;
  /** A connection of the site has been admitted. */
  readonly onSite: (site: string) => void;
  /** The site's last one has ended. */
  readonly onSiteLeft: (site: string) => void;
}

interface Identified {
  /** The node's id, or the joiner's; for a site, text that is neither. */
  readonly id: string;
  /** Empty for a node. */
  readonly site: string;
  readonly peer: Peer;
  readonly notAfterMs: number | null;
}

interface Connected {
  readonly peer: Peer;
  /** The site, and the join token of which its password was derived; both empty for a node. */
  readonly site: string;
  readonly token: string;
  /** Ends the watch of its standing. */
  readonly closed: () => void;
}

export class NodesAdmission {
  readonly #options: NodesAdmissionOptions;
  /** By node or joiner, and then by the server's number, in the order of their openings. */
  readonly #byId = new Map<string, Map<number, Connected>>();
  /** By the server's number, in the order of their openings. */
  readonly #ids = new Map<number, string>();
  /** Likewise, of those that join. */
  readonly #joining = new Set<number>();
  /** Until when a sender of a flood may not connect, in the time of `Clock.monotonic`. */
  readonly #pauses = new Map<string, number>();

  constructor(options: NodesAdmissionOptions) {
    this.#options = options;
  }

  admit(attempt: ConnectAttempt): Admitted {
    const { calls, clock, log, onSite, refusals, tokens } = this.#options;
    const { address, connection } = attempt;
    const identified = this.#identify(attempt);
    if (typeof identified === "string") {
      refusals.count("nats", "credentials", address);
      log.debug({ peer: address, reason: identified }, "refused a connection to the NATS for nodes");
      return { kind: "refused", reason: identified };
    }
    const { id, notAfterMs, peer, site } = identified;
    const sender = senderOf(id, peer);
    if ((this.#pauses.get(sender) ?? 0) > clock.monotonic()) return { kind: "postponed" };
    this.#pauses.delete(sender);
    const others = this.#byId.get(id);
    if (others !== undefined && others.size >= (site === "" ? connectionsPerNodeMax : connectionsPerSiteMax)) {
      refusals.count("nats", "known-limit", address);
      this.#evict(first(others.keys()));
    }
    const isJoining = peer.identity === null && site === "";
    if (isJoining && this.#joining.size >= joinersMax) {
      refusals.count("nats", "anonymous-limit", address);
      this.#evict(first(this.#joining));
    }
    // Nobody in particular speaks over a site's connection: the certificates inside it are watched instead.
    const { closed } = site === "" ? calls.gate.opened(peer, () => this.#end(connection)) : unwatched;
    this.#ids.set(connection, id);
    if (isJoining) this.#joining.add(connection);
    const known = this.#byId.get(id) ?? new Map<number, Connected>();
    this.#byId.set(id, known.set(connection, { peer, closed, site, token: site === "" ? "" : tokens().worker }));
    if (site === "") return { kind: "admitted", as: { kind: "node", id }, untilMs: notAfterMs };
    onSite(site);
    return { kind: "admitted", as: { kind: "site", site }, untilMs: null };
  }

  /** The caller behind the subjects of that id; null if it is not connected. */
  peerOf(id: string): Peer | null {
    return [...(this.#byId.get(id)?.values() ?? [])].at(-1)?.peer ?? null;
  }

  /** The address from which that site's leaf node is connected; empty if it is not. */
  addressOf(site: string): string {
    return this.peerOf(siteId(site))?.address ?? "";
  }

  /** The connection has ended. */
  gone(connection: number): void {
    this.#forget(connection);
  }

  /** AD3: the join tokens may have changed. */
  tokensChanged(): void {
    const { log, tokens } = this.#options;
    for (const connections of this.#byId.values())
      for (const [connection, { site, token }] of connections)
        if (site !== "" && token !== tokens().worker) {
          log.info(
            { site },
            "closed a leaf node's connection: the worker's join token, and so its password, was replaced",
          );
          this.#end(connection);
        }
  }

  /** AD3: ends the connections of a node that sends useless messages. */
  flooded(id: string): void {
    const { clock, log, refusals } = this.#options;
    log.warn({ node: id }, "closed the connections of a node that sends useless messages");
    for (const [connection, { peer }] of this.#byId.get(id) ?? []) {
      refusals.count("nats", "useless-messages", peer.address);
      this.#pauses.set(senderOf(id, peer), clock.monotonic() + floodPauseMs);
      this.#end(connection);
    }
  }

  #evict(connection: number): void {
    this.gone(connection);
    this.#disconnectSoon(connection);
  }

  /** AD3: its links end by themselves, and say why. */
  #end(connection: number): void {
    this.#forget(connection, "ends");
    this.#disconnectSoon(connection);
  }

  #disconnectSoon(connection: number): void {
    const { clock, disconnect } = this.#options;
    clock.setTimeout(() => disconnect(connection), closeGraceMs);
  }

  /** `ends`: a node's links end by themselves. */
  #forget(connection: number, how: "ends" | "gone" = "gone"): void {
    const id = this.#ids.get(connection);
    const others = this.#byId.get(id ?? "");
    const found = others?.get(connection);
    if (id === undefined || others === undefined || found === undefined) return;
    found.closed();
    others.delete(connection);
    this.#ids.delete(connection);
    this.#joining.delete(connection);
    if (others.size > 0) return;
    this.#byId.delete(id);
    if (found.site !== "") this.#options.onSiteLeft(found.site);
    else if (how === "gone") this.#options.onLeft(id);
  }

  /** AD1 */
  #identify({ address, nonce, password, signature, token, user }: ConnectAttempt): Identified | string {
    const { calls, fingerprints, tokens } = this.#options;
    if (user !== "") {
      if (!isSitePassword(password, tokens().worker, user)) return "invalid password of a site";
      const peer: Peer = { identity: null, local: false, address };
      return { id: siteId(user), site: user, peer, notAfterMs: null };
    }
    const claim = readClaim(token);
    if (claim === null || nonce === "") return "neither a node's certificate nor a join token was shown";
    if (claim.kind === "joiner") {
      const { manager, worker } = tokens();
      if (!knowsToken(claim.joiner, signature, [worker, manager], { nonce })) return "invalid join token";
      const joiner = calls.identify(null, address);
      return typeof joiner === "string" ? joiner : { ...joiner, id: claim.joiner, site: "" };
    }
    const challenges = fingerprints().map((server) => ({ server, nonce }));
    if (!isSignedBy(claim.chainPem, signature, challenges)) return "the certificate's key did not sign the challenge";
    const node = calls.identify(claim.chainPem, address);
    return typeof node === "string" ? node : { ...node, id: node.peer.identity?.nodeId ?? "", site: "" };
  }
}

const unwatched = { closed: () => undefined };

/** No node and no joiner has such an id. */
function siteId(site: string): string {
  return `site ${site}`;
}

/** The culprit of a flood: a node, or the address of one that joins. */
function senderOf(id: string, { address, identity }: Peer): string {
  return identity === null ? `at ${address}` : id;
}

function first(connections: Iterable<number>): number {
  const [oldest] = connections;
  return oldest as number;
}
