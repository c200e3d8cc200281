/**
 * Checks passwords for the JSON API and for logins over gRPC: one instance per process, so that password guessing has the same
 * limits at both.
 *
 * JA1: a name that does not exist is refused like a wrong password, after the same work.
 */
import { LoginRate } from "../../machines/json/login-rate.ts";
import { timeMs } from "../../proto/time.ts";
import type { JsonApi, LoginAttempt, LoginOutcome } from "../../runtime/ports/json-api.ts";
import { PasswordsBusy, type Passwords } from "../../runtime/ports/passwords.ts";
import { sourceOf } from "../../runtime/source-of.ts";
import type { Environment } from "../environment.ts";
import { createRegistrations } from "./registrations.ts";
import { identityOf, recordId } from "./user-records.ts";
import { noteLogin } from "./users.ts";

export interface Logins {
  /** Reads the user's record in the turn in which it is called, and again when the password has been verified. */
  check(attempt: LoginAttempt): Promise<LoginOutcome>;
  /** Shares the limits of `check`. */
  readonly register: JsonApi["register"];
}

export function createLogins(env: Environment, passwords: Passwords): Logins {
  const { clock, store } = env;
  const rate = new LoginRate();
  const noting = new Set<string>();

  function note(name: string, address: string): void {
    if (noting.has(name)) return;
    noting.add(name);
    noteLogin(env, name, address)
      .catch((error: unknown) => env.telemetry.log.debug({ err: error, user: name }, "cannot record a login"))
      .finally(() => noting.delete(name));
  }

  return {
    register: createRegistrations(env, passwords, rate),

    async check({ name, password, address, certifiedNode }) {
      if (!rate.admits(sourceOf(address), clock.monotonic())) return { kind: "busy" };
      const identity = name === null ? null : identityOf(store, name);
      if (identity?.kind === "machine" && identity.nodeId === certifiedNode)
        return { kind: "accepted", identity, lastLoginMs: null };
      const record = name === null || identity === null ? undefined : store.get("user", recordId(name));
      let isRight: boolean;
      try {
        isRight = await passwords.verify(password, record?.password ?? null);
      } catch (error) {
        if (error instanceof PasswordsBusy) return { kind: "busy" };
        throw error;
      }
      // The user may have been removed meanwhile.
      const present = name === null || !isRight ? null : identityOf(store, name);
      if (present !== null) {
        const lastLogin = record?.lastLogin ?? null;
        if (present.kind === "user") note(present.name, address);
        return { kind: "accepted", identity: present, lastLoginMs: lastLogin === null ? null : timeMs(lastLogin) };
      }
      rate.refused(sourceOf(address), clock.monotonic());
      return { kind: "refused" };
    },
  };
}
