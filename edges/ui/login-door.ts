/**
 * Lets in users of the JSON API who log in with their password, at a manager.
 *
 * LD1: a login ends after `sessionMs`, when the browser logs in again or out, when the user has too many, is removed or disabled,
 *      and when the password changes; the calls of its pages then end too. When the user's role changes, its pages connect again, with the new role.
 * LD2: passwords are checked with the limits of all ports of the process (`actors/json/logins.ts`).
 */
import type { IncomingMessage } from "node:http";
import type { Subscription } from "../../runtime/ports/index.ts";
import type { Identity, JsonApi } from "../../runtime/ports/json-api.ts";
import type { Role } from "../../runtime/user-roles.ts";
import { bodyOf } from "../juju/http-answers.ts";
import { originOfHost } from "../juju/origin.ts";
import type { Tickets } from "../juju/tickets.ts";
import { escaped } from "../../lib/escaped.ts";
import { plainPage, sentencePage, type Answer } from "./answers.ts";
import type { UiSession } from "./backend.ts";
import { cookieOf, mayHaveCookie, type Door, type Visitor } from "./door.ts";
import { sessionMs } from "./limits.ts";

/** A user with a valid login. */
export interface LoggedInUser {
  readonly name: string;
  readonly role: Role;
  /** Identifies the password with which the user logged in. */
  readonly mark: string;
  /** Time until the login ends, in milliseconds. */
  readonly leftMs: number;
  /** IP address of the browser. */
  readonly address: string;
}

interface LoginDoorOptions {
  readonly port: number;
  readonly checkLogin: JsonApi["checkLogin"];
  readonly tickets: Tickets;
  readonly open: (user: LoggedInUser) => Promise<UiSession> | UiSession;
}

const title = "<p>Log in with a user of this cluster.</p>";
const form = `<form method="post" action="/login">
        <label for="name">User</label>
        <input id="name" name="name" autocomplete="username" autocapitalize="none" required />
        <label for="password">Password</label>
        <input id="password" name="password" type="password" autocomplete="current-password" required />
        <button type="submit">Log in</button>
      </form>`;

export class LoginDoor implements Door {
  readonly wrongHost = "This request names no host.";
  readonly #options: LoginDoorOptions;
  /** Browsers send a cookie to every port of a host: several managers need different names. */
  readonly #cookie: string;
  /** By the secret of the login. */
  readonly #leaving = new Map<string, Set<() => void>>();

  constructor(options: LoginDoorOptions) {
    this.#options = options;
    this.#cookie = `__Host-muster-ui-${options.port}`;
    options.tickets.onDropped((secret) => {
      for (const listener of Array.from(this.#leaving.get(secret) ?? [])) listener();
    });
  }

  /** Any name: a page of another one that leads here has no certificate for it, and no cookie. */
  originOf(host: string): string | null {
    return originOfHost(host);
  }

  answer(request: IncomingMessage, { pathname }: URL): Promise<Answer> | Answer | null {
    if (pathname !== "/login" && pathname !== "/logout") return null;
    if (request.method !== "POST") return toStart();
    return pathname === "/login" ? this.#login(request) : this.#logout(request);
  }

  visitorOf(request: IncomingMessage): Visitor | null {
    const secret = cookieOf(request, this.#cookie);
    const user = this.#userOf(secret);
    if (user === null) return null;
    return {
      user: user.name,
      open: async (address) => {
        // The login may have ended since the request.
        const now = this.#userOf(secret);
        if (now === null) throw new Error("this login has ended");
        return this.#options.open({ ...now, address });
      },
      onLeft: (listener) => this.#onLeft(secret, listener),
    };
  }

  refusal(request: IncomingMessage): Answer {
    return plainPage({
      status: 401,
      main: title + form,
      ...(mayHaveCookie(request) ? { goesTo: "/?again" } : {}),
    });
  }

  #userOf(secret: string): Omit<LoggedInUser, "address"> | null {
    const standing = this.#options.tickets.standing(secret);
    return standing?.identity.kind === "user" ? { ...standing.identity, ...standing } : null;
  }

  async #login(request: IncomingMessage): Promise<Answer> {
    const body = await bodyOf(request);
    if (body === null) return sentencePage(413, "The form is too large.", { connection: "close" });
    const fields = new URLSearchParams(body);
    const name = { kind: "user", name: fields.get("name") ?? "" } as const;
    const { tickets, checkLogin } = this.#options;
    const outcome = await checkLogin({
      name,
      password: fields.get("password") ?? "",
      address: request.socket.remoteAddress ?? "",
      certifiedNode: null,
    });
    if (outcome.kind === "busy")
      return this.#again(503, "Too many logins at this moment: try again in a few seconds.", { "retry-after": "5" });
    if (outcome.kind === "refused" || !isUser(outcome.identity))
      return this.#again(401, "The user name or the password is wrong, or the user is disabled.");
    tickets.drop(cookieOf(request, this.#cookie));
    const secret = tickets.issue(name, sessionMs);
    return toStart(`${this.#cookie}=${secret}; Path=/; Secure; HttpOnly; SameSite=Strict`);
  }

  #logout(request: IncomingMessage): Answer {
    this.#options.tickets.drop(cookieOf(request, this.#cookie));
    return toStart(`${this.#cookie}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Strict`);
  }

  #again(status: number, sentence: string, headers: Readonly<Record<string, string>> = {}): Answer {
    return plainPage({ status, main: `<p role="alert">${escaped(sentence)}</p>${form}`, headers });
  }

  #onLeft(secret: string, listener: () => void): Subscription {
    const listeners = this.#leaving.get(secret) ?? new Set();
    this.#leaving.set(secret, listeners.add(listener));
    return {
      unsubscribe: () => {
        listeners.delete(listener);
        if (listeners.size === 0) this.#leaving.delete(secret);
      },
    };
  }
}

const isUser = (identity: Identity): boolean => identity.kind === "user";

/** Browsers keep the fragment of the address. */
function toStart(cookie = ""): Answer {
  return { status: 303, headers: { location: "/", ...(cookie === "" ? {} : { "set-cookie": cookie }) }, body: "" };
}
