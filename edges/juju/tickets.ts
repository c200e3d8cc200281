/**
 * Logins by password that were done over HTTP, for Juju's command and Go client: these have a macaroon for them, and show it at each
 * connection instead of the password (reference §2.5). What counts of a macaroon here is its identifier, a secret that nobody can
 * guess; whoever holds one may not hand on a weaker one, as holders of true macaroons may.
 *
 * T1: a ticket ends with its time, when its user is removed or disabled, and when the password changes.
 * T2: there are at most `ticketsMax`; the oldest goes first. They are one process's: another manager asks for the password again.
 */
import { createHash, randomBytes } from "node:crypto";
import type { Identity, JsonApi, LoginName } from "../../runtime/json-api.ts";
import type { Clock } from "../../runtime/ports.ts";
import { verbatim, type Json } from "./results.ts";

/** As long as Juju's own are, in milliseconds. */
export const ticketMs = 24 * 3_600_000;
export const ticketsMax = 10_000;
const secretBytes = 32;
/** Of the macaroons that a login shows: a client has one or two for each controller. */
const shownMax = 100;

/** Juju's name of the way in which a password is asked for. */
export const interaction = "juju_userpass";

interface Ticket {
  readonly name: LoginName;
  /** What the password was then. */
  readonly mark: string;
  readonly endsMs: number;
}

export class Tickets {
  readonly #api: Pick<JsonApi, "standing">;
  readonly #clock: Pick<Clock, "monotonic">;
  /** Oldest first. */
  readonly #tickets = new Map<string, Ticket>();

  constructor(api: Pick<JsonApi, "standing">, clock: Pick<Clock, "monotonic">) {
    this.#api = api;
    this.#clock = clock;
  }

  /** For whoever has just shown the password; `lifeMs` milliseconds long. */
  issue(name: LoginName, lifeMs = ticketMs): string {
    const secret = randomBytes(secretBytes).toString("hex");
    const mark = this.#api.standing(name)?.mark ?? "";
    this.#tickets.set(secret, { name, mark, endsMs: this.#clock.monotonic() + lifeMs });
    if (this.#tickets.size > ticketsMax) for (const oldest of this.#tickets.keys()) return this.#drop(oldest, secret);
    return secret;
  }

  #drop(oldest: string, secret: string): string {
    this.#tickets.delete(oldest);
    return secret;
  }

  /** Who has it, as that is now; null: it is none, or none any more. T1 */
  holder(secret: string): Identity | null {
    const ticket = this.#tickets.get(secret);
    if (ticket === undefined) return null;
    const now = this.#api.standing(ticket.name);
    if (now !== null && now.mark === ticket.mark && this.#clock.monotonic() < ticket.endsMs) return now.identity;
    this.#tickets.delete(secret);
    return null;
  }

  /** The first of these that is a ticket of the user `name`; null: none is. */
  shownFor(secrets: readonly string[], name: LoginName | null): string | null {
    if (name?.kind !== "user") return null;
    const isHers = (holder: Identity | null): boolean => holder?.kind === "user" && holder.name === name.name;
    return secrets.find((secret) => isHers(this.holder(secret))) ?? null;
  }

  /** The user `name`, where one of these is hers; null otherwise. */
  redeem(secrets: readonly string[], name: LoginName | null): Identity | null {
    const ticket = this.shownFor(secrets, name);
    return ticket === null ? null : this.holder(ticket);
  }
}

/** A macaroon in its first JSON format. */
export function macaroon(identifier: string, caveats: readonly Json[]): Json {
  // A client takes none without a signature, and checks nothing of it.
  const signature = createHash("sha256").update(identifier).digest("hex");
  return verbatim({ caveats: [...caveats], location: "juju", identifier, signature });
}

/** A cookie, as Go's clients keep macaroons: they show it at the login of the same host. `lifeMs` in milliseconds. */
export function macaroonCookie(identifier: string, lifeMs: number): string {
  const value = Buffer.from(JSON.stringify([macaroon(identifier, [])])).toString("base64");
  // Of several cookies of one host each needs a name of its own, which tells nothing.
  const name = createHash("sha256").update(`cookie ${identifier}`).digest("hex");
  return `macaroon-${name}=${value}; Path=/; Max-Age=${Math.floor(lifeMs / 1_000)}; Secure; HttpOnly`;
}

/** What a login of `tag` without a password is answered: who proves to be that user at `https://HOST/auth` may come back with that. */
export function dischargeRequired(host: string, tag: string): Json {
  const caveat = verbatim({ cid: tag, vid: "AA", cl: `https://${host}/auth` });
  return {
    "discharge-required": macaroon("login", [caveat]),
    "discharge-required-error": "a password is required",
  };
}

/** Identifiers of macaroons in `[][]macaroon`, in either of their JSON formats; what is none of these is passed over. */
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

/** The same of a `Cookie` header, where each macaroon's cookie has a list of them. */
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
