/**
 * Logins by password over HTTP, for Juju's command and Go client, which present a macaroon at each connection instead of the
 * password (reference §2.5). Here a macaroon is valid by its identifier, an unguessable secret; its holder cannot derive weaker
 * ones, as with real macaroons.
 *
 * T1: a ticket ends when it expires, when its user is removed or disabled, and when the password changes.
 * T2: at most `ticketsMax` are kept, and `userTicketsMax` of one user; the oldest is dropped first, of the user who has too many
 *     or else of all. They belong to one process: another manager asks for the password again.
 */
import { createHash, randomBytes } from "node:crypto";
import type { Identity, JsonApi, LoginName } from "../../runtime/ports/json-api.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import { verbatim, type Json } from "./results.ts";

/** In milliseconds, the lifetime of Juju's own macaroons. */
export const ticketMs = 24 * 3_600_000;
const ticketsMax = 10_000;
/** A person's browsers and clients, and logins by scripts that keep no macaroon: they do not end the logins of others. */
export const userTicketsMax = 100;
const secretBytes = 32;
/** Maximum number of macaroons read from a login; clients have one or two per controller. */
const shownMax = 100;

/** Juju's name for asking for user and password. */
export const interaction = "juju_userpass";

interface Ticket {
  readonly name: LoginName;
  /** Identifies the password at the time of issue. */
  readonly mark: string;
  readonly endsMs: number;
}

const keyOf = (name: LoginName): string => JSON.stringify(name);

export class Tickets {
  readonly #api: Pick<JsonApi, "standing">;
  readonly #clock: Pick<Clock, "monotonic">;
  /** Oldest first. */
  readonly #tickets = new Map<string, Ticket>();
  /** Secrets of each user, oldest first. */
  readonly #users = new Map<string, Set<string>>();
  #onDropped: (secret: string) => void = () => undefined;

  constructor(api: Pick<JsonApi, "standing">, clock: Pick<Clock, "monotonic">) {
    this.#api = api;
    this.#clock = clock;
  }

  /** For a user whose password has just been checked; `lifeMs` in milliseconds. */
  issue(name: LoginName, lifeMs = ticketMs): string {
    const secret = randomBytes(secretBytes).toString("hex");
    const mark = this.#api.standing(name)?.mark ?? "";
    this.#tickets.set(secret, { name, mark, endsMs: this.#clock.monotonic() + lifeMs });
    const own = this.#users.get(keyOf(name)) ?? new Set();
    this.#users.set(keyOf(name), own.add(secret));
    const crowded = own.size > userTicketsMax ? own : this.#tickets.size > ticketsMax ? this.#tickets : null;
    const [oldest] = crowded?.keys() ?? [];
    if (oldest !== undefined) this.drop(oldest);
    return secret;
  }

  /** Calls back when a ticket ends before its time: dropped by its owner or for a newer one. Only one listener. */
  onDropped(listener: (secret: string) => void): void {
    this.#onDropped = listener;
  }

  /**
   * The ticket's current identity, the mark of its password, and the time that it is valid for, in milliseconds; null if the
   * ticket is unknown or no longer valid. T1
   */
  standing(secret: string): { readonly identity: Identity; readonly mark: string; readonly leftMs: number } | null {
    const ticket = this.#tickets.get(secret);
    if (ticket === undefined) return null;
    const now = this.#api.standing(ticket.name);
    const leftMs = ticket.endsMs - this.#clock.monotonic();
    if (now !== null && now.mark === ticket.mark && leftMs > 0) return { ...now, leftMs };
    this.#forget(secret, ticket);
    return null;
  }

  /** The ticket's current identity; null if the ticket is unknown or no longer valid. T1 */
  holder(secret: string): Identity | null {
    return this.standing(secret)?.identity ?? null;
  }

  /** Ends a ticket; does nothing for an unknown one. */
  drop(secret: string): void {
    const ticket = this.#tickets.get(secret);
    if (ticket === undefined) return;
    this.#forget(secret, ticket);
    this.#onDropped(secret);
  }

  #forget(secret: string, { name }: Ticket): void {
    this.#tickets.delete(secret);
    const own = this.#users.get(keyOf(name));
    own?.delete(secret);
    if (own?.size === 0) this.#users.delete(keyOf(name));
  }

  /** The first of the secrets that is a ticket of the user `name`; null if none. */
  shownFor(secrets: readonly string[], name: LoginName | null): string | null {
    if (name?.kind !== "user") return null;
    const isHers = (holder: Identity | null): boolean => holder?.kind === "user" && holder.name === name.name;
    return secrets.find((secret) => isHers(this.holder(secret))) ?? null;
  }

  /** The identity of the user `name`, if one of the secrets is a ticket of that user; otherwise null. */
  redeem(secrets: readonly string[], name: LoginName | null): Identity | null {
    const ticket = this.shownFor(secrets, name);
    return ticket === null ? null : this.holder(ticket);
  }
}

/** A macaroon in the first JSON format. */
export function macaroon(identifier: string, caveats: readonly Json[]): Json {
  // Clients require a signature but do not check it.
  const signature = createHash("sha256").update(identifier).digest("hex");
  return verbatim({ caveats: [...caveats], location: "juju", identifier, signature });
}

/** A cookie as Go's clients store macaroons, sent with logins to the same host. `lifeMs` in milliseconds. */
export function macaroonCookie(identifier: string, lifeMs: number): string {
  const value = Buffer.from(JSON.stringify([macaroon(identifier, [])])).toString("base64");
  // Cookies of one host need different names; a hash reveals nothing.
  const name = createHash("sha256").update(`cookie ${identifier}`).digest("hex");
  return `macaroon-${name}=${value}; Path=/; Max-Age=${Math.floor(lifeMs / 1_000)}; Secure; HttpOnly`;
}

/** The reply to a login of `tag` without a password: a macaroon, to be discharged at `https://HOST/auth` by that user. */
export function dischargeRequired(host: string, tag: string): Json {
  const caveat = verbatim({ cid: tag, vid: "AA", cl: `https://${host}/auth` });
  return {
    "discharge-required": macaroon("login", [caveat]),
    "discharge-required-error": "a password is required",
  };
}

/** Identifiers of macaroons in `[][]macaroon`, in both JSON formats; skips everything else. */
export function identifiersOf(macaroons: unknown): readonly string[] {
  const found: string[] = [];
  for (const each of [macaroons].flat(2)) {
    if (found.length >= shownMax) break;
    if (typeof each !== "object" || each === null) continue;
    const { identifier, i } = each as { readonly identifier?: unknown; readonly i?: unknown };
    const text = identifier ?? i;
    if (typeof text === "string") found.push(text);
  }
  return found;
}

/** The identifiers in a `Cookie` header, where each macaroon cookie holds a list of macaroons. */
export function identifiersInCookies(header: string): readonly string[] {
  return Array.from(header.matchAll(/(?:^|; *)macaroon-[^=;]*=([^;]+)/g), ([, value = ""]) => {
    try {
      return identifiersOf(JSON.parse(Buffer.from(value, "base64").toString("utf8")));
    } catch {
      return [];
    }
  })
    .flat()
    .slice(0, shownMax);
}
