/**
 * The connections whose callers showed a certificate, and the reasons for which we end them.
 *
 * K1: a connection ends in the turn in which its caller's standing changes: its node was removed or has another role, or its
 *     user was removed or disabled or has another role or password. This includes promotions, so that nobody acts under a
 *     former role.
 * K2: it ends when its certificate expires. The remaining time is computed once, so a clock that is set back prolongs
 *     nothing; a clock that is set forward counts from the next call on.
 * K3: it ends when the roots change and none of them vouches for its certificate any longer; a handshake that was in progress
 *     at the change is checked again.
 * K4: after `close` it ends no connection and keeps no timer: the owner ends the connections that are still open.
 */
import type { Clock, Subscription, TimerHandle } from "../../runtime/ports/index.ts";
import { soon } from "../../runtime/system/turns.ts";
import { certifiedId, standingOf, type Caller, type Membership, type Standing } from "./roles.ts";

interface Certified {
  readonly caller: Caller;
}

/** Why a connection ends. For K1 its calls report more: `authorize` is asked for each. */
export type EndReason = "standing" | "expired" | "root";

/** Whether one of the roots vouches for the caller's certificate, and the certificate is valid at that time. */
type IsVouchedFor = (rootPem: string, nowMs: number) => boolean;

interface Kept {
  readonly isVouchedFor: IsVouchedFor;
  readonly standing: Standing;
  readonly expiry: TimerHandle | null;
}

interface CertifiedOptions<Connection extends Certified> {
  readonly clock: Clock;
  readonly membership: Membership;
  readonly rootPem: string;
  /** Timeout of a handshake, in milliseconds. */
  readonly handshakeTimeoutMs: number;
  readonly end: (connection: Connection, reason: EndReason) => void;
}

export class CertifiedConnections<Connection extends Certified> {
  readonly #options: CertifiedOptions<Connection>;
  readonly #watching: Subscription;
  readonly #kept = new Map<Connection, Kept>();
  /** By `certifiedId`. */
  readonly #byId = new Map<string, Set<Connection>>();
  #rootPem: string;
  /** In the time of `performance.now`; null before the first change. */
  #rootsChangedAt: number | null = null;
  #isClosed = false;

  constructor(options: CertifiedOptions<Connection>) {
    this.#options = options;
    this.#rootPem = options.rootPem;
    this.#watching = options.membership.onChange((ids) => {
      for (const id of ids) for (const each of this.#byId.get(id) ?? []) this.#checkStanding(each);
    });
  }

  /** Does nothing for a caller without a certificate. */
  add(connection: Connection, isVouchedFor: IsVouchedFor): void {
    const { clock, handshakeTimeoutMs, membership } = this.#options;
    const { caller } = connection;
    // K4
    if (!caller.isCertified || this.#isClosed) return;
    // A certificate is still valid at the instant of its expiry time.
    const leftMs = caller.notAfterMs === null ? null : Math.max(0, caller.notAfterMs - clock.now() + 1);
    const expiry = leftMs === null ? null : clock.setTimeout(() => this.#end(connection, "expired"), leftMs);
    this.#kept.set(connection, { isVouchedFor, standing: standingOf(caller, membership), expiry });
    const id = certifiedId(caller);
    if (id !== "") {
      const others = this.#byId.get(id);
      if (others === undefined) this.#byId.set(id, new Set([connection]));
      else others.add(connection);
    }
    const sinceRoots = this.#rootsChangedAt === null ? Infinity : performance.now() - this.#rootsChangedAt;
    if (sinceRoots <= handshakeTimeoutMs) this.#checkRoot(connection);
  }

  /** The connection has ended, or is about to. */
  remove(connection: Connection): void {
    const kept = this.#kept.get(connection);
    if (kept === undefined) return;
    this.#kept.delete(connection);
    if (kept.expiry !== null) this.#options.clock.clearTimeout(kept.expiry);
    const id = certifiedId(connection.caller);
    const others = this.#byId.get(id);
    others?.delete(connection);
    if (others?.size === 0) this.#byId.delete(id);
  }

  /** Checked at each call: ends a connection whose certificate has expired by the clock. K2 */
  checkExpiry(connection: Connection): void {
    const { notAfterMs } = connection.caller;
    if (notAfterMs !== null && this.#options.clock.now() > notAfterMs) this.#end(connection, "expired");
  }

  /** K3. A check takes some 0.3 ms: with thousands of connections, other events are handled in between. */
  setRoots(rootPem: string): void {
    if (rootPem === this.#rootPem) return;
    this.#rootPem = rootPem;
    this.#rootsChangedAt = performance.now();
    for (const connection of this.#kept.keys()) soon(() => this.#checkRoot(connection));
  }

  /** K4 */
  close(): void {
    this.#isClosed = true;
    this.#watching.unsubscribe();
    for (const connection of this.#kept.keys()) this.remove(connection);
  }

  #checkRoot(connection: Connection): void {
    const kept = this.#kept.get(connection);
    if (kept === undefined || kept.isVouchedFor(this.#rootPem, this.#options.clock.now())) return;
    this.#end(connection, "root");
  }

  #checkStanding(connection: Connection): void {
    const kept = this.#kept.get(connection);
    if (kept !== undefined && standingOf(connection.caller, this.#options.membership) !== kept.standing)
      this.#end(connection, "standing");
  }

  #end(connection: Connection, reason: EndReason): void {
    if (!this.#kept.has(connection)) return;
    this.remove(connection);
    this.#options.end(connection, reason);
  }
}
