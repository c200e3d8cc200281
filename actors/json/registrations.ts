/**
 * Registers users at the JSON API: a user proves a secret key once and chooses a password with it
 * (`machines/json/registration.ts`).
 */
import type { LoginRate } from "../../machines/json/login-rate.ts";
import { isSameRegistration, secretKeyBytes, usableRegistration } from "../../machines/json/registration.ts";
import { checkPassword } from "../../machines/validation/user.ts";
import { User } from "../../proto/gen/messages.ts";
import type { RegistrationAttempt, RegistrationOutcome } from "../../runtime/ports/json-api.ts";
import { PasswordsBusy, type Passwords } from "../../runtime/ports/passwords.ts";
import { sourceOf } from "../../runtime/source-of.ts";
import { RpcError, type Peer } from "../../runtime/ports/rpc.ts";
import { replacement, transact } from "../control/write.ts";
import type { Environment } from "../environment.ts";
import { passwordOf, recordId } from "./user-records.ts";

/** The registration was used or replaced during this attempt. */
class SpentError extends Error {
  override readonly name = "SpentError";
}

export function createRegistrations(
  env: Pick<Environment, "clock" | "proposer" | "random" | "store" | "telemetry">,
  passwords: Passwords,
  rate: LoginRate,
): (attempt: RegistrationAttempt) => Promise<RegistrationOutcome> {
  const { clock, store } = env;
  // An unknown user costs the same work as a known one.
  const decoy = env.random.fork("registrations").bytes(secretKeyBytes);

  return async ({ name, address, open }) => {
    if (!rate.admits(sourceOf(address), clock.monotonic())) return { kind: "busy" };
    const id = name?.kind === "user" ? recordId(name) : "";
    const registration = usableRegistration(store.get("user", id), clock.now());
    const password = open(registration?.secretKey ?? decoy);
    if (registration === null || password === null) {
      rate.refused(sourceOf(address), clock.monotonic());
      return { kind: "refused" };
    }
    const refusal = checkPassword(password);
    if (refusal !== null) return { kind: "unfit", reason: refusal.message };
    const peer: Peer = { identity: null, local: false, address, user: id };
    try {
      const hash = passwordOf(await passwords.hash(password));
      await transact(env, { traceparent: "", peer, method: "Register" }, () => {
        const user = store.get("user", id);
        if (user === undefined || !isSameRegistration(usableRegistration(user, clock.now()), registration))
          throw new SpentError();
        return [replacement("user", User.patch(user, { password: hash, registration: null }))];
      });
      return { kind: "registered", secretKey: registration.secretKey };
    } catch (error) {
      if (error instanceof SpentError) {
        rate.refused(sourceOf(address), clock.monotonic());
        return { kind: "refused" };
      }
      if (error instanceof PasswordsBusy) return { kind: "busy" };
      if (!(error instanceof RpcError)) throw error;
      env.telemetry.log.info({ err: error, user: id }, "cannot record a registration");
      return { kind: "busy" };
    }
  };
}
