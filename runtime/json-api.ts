/**
 * Between the JSON API's edge and the actors behind it: who may log in, and the chart of a connection. `actors/json/json-api.ts`
 * implements it, `edges/juju/` uses it.
 */
import type { Subscription } from "./ports.ts";
import type { Role } from "./user-roles.ts";

export type { Role } from "./user-roles.ts";

/** Who has logged in. */
export type Identity =
  | { readonly kind: "user"; readonly name: string; readonly role: Role }
  /** The agent of a node. */
  | { readonly kind: "machine"; readonly nodeId: string }
  /** The agent of a task. */
  | { readonly kind: "unit"; readonly taskId: string };

/** What a tag names, whether or not there is one of that name. */
export type LoginName =
  | { readonly kind: "user"; readonly name: string }
  | { readonly kind: "machine"; readonly nodeId: string }
  | { readonly kind: "unit"; readonly taskId: string };

export interface LoginAttempt {
  /** Null for a tag that names nothing: it costs the same work. */
  readonly name: LoginName | null;
  readonly password: string;
  /** The node whose certificate of this cluster the client showed: it needs no password. */
  readonly certifiedNode: string | null;
  /** IP address of the client. */
  readonly address: string;
}

/** `busy`: too many logins at the moment, of this address or of all; the client may come again. */
export type LoginOutcome =
  | {
      readonly kind: "accepted";
      readonly identity: Identity;
      /** When a user logged in before, in milliseconds since the Unix epoch; null: not before, or no user. */
      readonly lastLoginMs: number | null;
    }
  | { readonly kind: "refused" }
  | { readonly kind: "busy" };

/** Somebody who has no login says that they were handed a user's secret key. */
export interface RegistrationAttempt {
  /** Null for a tag that names nothing: it costs the same work. */
  readonly name: LoginName | null;
  /** IP address of the client. */
  readonly address: string;
  /** The password that they chose, if what they sent opens with that key (32 bytes); null if it does not. */
  open(secretKey: Uint8Array): string | null;
}

export type RegistrationOutcome =
  /** The password counts and the key is spent; the answer is sealed with it, to prove who gives it. */
  | { readonly kind: "registered"; readonly secretKey: Uint8Array }
  /** No such user, no registration, it has ended, or another key. */
  | { readonly kind: "refused" }
  /** The key is right and stays good, but the password cannot be taken. */
  | { readonly kind: "unfit"; readonly reason: string }
  /** Too many attempts at the moment, or nobody could write it down; the client may come again. */
  | { readonly kind: "busy" };

/** What the chart of a connection has done. */
export interface ConnectionEffects {
  /** Ends with `loginAccepted` or `loginRefused`. */
  checkLogin(key: number): void;
  welcome(key: number): void;
  refuseLogin(key: number, reason: "checking" | "already"): void;
  refuseRequest(key: number): void;
  ping(): void;
  release(): void;
  sayGoodbye(code: number, reason: string): void;
  cutOff(): void;
}

/** What a connection tells its chart. `key`: whatever finds the request again. */
export interface ConnectionChart {
  opened(): void;
  /** Ends the chart. */
  closed(): void;
  loginAsked(key: number): void;
  loginAccepted(key: number, tag: string): void;
  loginRefused(key: number): void;
  requestAsked(key: number): void;
  messageBroken(reason: string): void;
  identityGone(): void;
  heard(): void;
  outputStuck(): void;
  outputMoved(): void;
  outputEmpty(): void;
  outputOverflowed(): void;
  serverStopping(): void;
}

export interface JsonApi {
  /** `id` is unique among the process's connections. */
  startConnection(id: string, effects: ConnectionEffects): ConnectionChart;
  checkLogin(attempt: LoginAttempt): Promise<LoginOutcome>;
  register(attempt: RegistrationAttempt): Promise<RegistrationOutcome>;
  /** The identity as it is by now; null when it is gone. */
  identityNow(identity: Identity): Identity | null;
  /** Who that is by now, and a text that another password changes; null when there is none, or it is disabled. */
  standing(name: LoginName): { readonly identity: Identity; readonly mark: string } | null;
  /** Calls back once, when it is gone. */
  onGone(identity: Identity, listener: () => void): Subscription;
}
