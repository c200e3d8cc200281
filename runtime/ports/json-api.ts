/**
 * The interface between the JSON API's edge and the actors behind it: logins, and each connection's chart.
 * `actors/json/api.ts` implements it; `edges/juju/` uses it.
 */
import type { Subscription } from "./index.ts";
import type { Role } from "../user-roles.ts";

export type { Role } from "../user-roles.ts";

/** The logged-in user or agent. */
export type Identity =
  | { readonly kind: "user"; readonly name: string; readonly role: Role }
  /** The agent of a node. */
  | { readonly kind: "machine"; readonly nodeId: string }
  /** The agent of a task. */
  | { readonly kind: "unit"; readonly taskId: string };

/** The entity that a tag names, whether or not it exists. */
export type LoginName =
  | { readonly kind: "user"; readonly name: string }
  | { readonly kind: "machine"; readonly nodeId: string }
  | { readonly kind: "unit"; readonly taskId: string };

export interface LoginAttempt {
  /** Null for a tag that names nothing; checking it takes the same work. */
  readonly name: LoginName | null;
  readonly password: string;
  /** The node of the cluster certificate that the client presented; it needs no password. Null without one. */
  readonly certifiedNode: string | null;
  /** IP address of the client. */
  readonly address: string;
}

/** `busy`: too many concurrent logins, from this address or in total; the client may retry. */
export type LoginOutcome =
  | {
      readonly kind: "accepted";
      readonly identity: Identity;
      /** The user's previous login, in milliseconds since the Unix epoch; null for a first login and for agents. */
      readonly lastLoginMs: number | null;
    }
  | { readonly kind: "refused" }
  | { readonly kind: "busy" };

/** A user without a login claims to have the secret key of a registration. */
export interface RegistrationAttempt {
  /** Null for a tag that names nothing; checking it takes the same work. */
  readonly name: LoginName | null;
  /** IP address of the client. */
  readonly address: string;
  /** The chosen password if the payload opens with that key (32 bytes), otherwise null. */
  open(secretKey: Uint8Array): string | null;
}

export type RegistrationOutcome =
  /** The password is set and the key is used up. The reply is sealed with the key, to prove that the server knows it. */
  | { readonly kind: "registered"; readonly secretKey: Uint8Array }
  /** No such user, no registration, an expired one, or the wrong key. */
  | { readonly kind: "refused" }
  /** The key is right and stays valid, but the password is not acceptable. */
  | { readonly kind: "unfit"; readonly reason: string }
  /** Too many concurrent attempts, or the log did not accept the write; the client may retry. */
  | { readonly kind: "busy" };

/** The effects of a connection's chart. */
interface ConnectionEffects {
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

/** Events that a connection sends to its chart. `key` identifies the request. */
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
  /** The current state of the identity; null once it is removed. */
  identityNow(identity: Identity): Identity | null;
  /**
   * The current identity behind a name, and a mark that changes with the password; null if it does not exist or is disabled.
   */
  standing(name: LoginName): { readonly identity: Identity; readonly mark: string } | null;
  /** Calls back once, when the identity is removed. */
  onGone(identity: Identity, listener: () => void): Subscription;
}
