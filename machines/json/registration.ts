/**
 * Registrations: how a user who was added without a password chooses one (`juju register`). Whoever was handed the secret key proves it
 * once, without a login.
 *
 * RG1: a registration ends with the password that it sets, and with any other password of that user.
 * RG2: it ends at its time, and counts for nothing while its user is disabled.
 * RG3: at most `registrationsMax` users have one at a time.
 */
import { timeMs, timestampOf } from "../../proto/time.ts";
import { Registration, type User } from "../../proto/gen/messages.ts";

/** How long a key is good, in milliseconds: a day, within which an administrator can send it and a colleague use it. Juju's have no end. */
export const registrationMs = 24 * 3_600_000;
/** Users who have yet to register, in the whole cluster: a class or a company at once, and little enough that looking through them is nothing. */
export const registrationsMax = 1_000;
/** A key of NaCl's secretbox. */
export const secretKeyBytes = 32;

/** `secretKey`: `secretKeyBytes` random bytes; `nowMs`: milliseconds since the Unix epoch. */
export function newRegistration(secretKey: Uint8Array, nowMs: number): Registration {
  return Registration.create({ secretKey, endsAt: timestampOf(nowMs + registrationMs) });
}

/** The user's registration if it can be used now; null otherwise. RG2 */
export function usableRegistration(user: User | undefined, nowMs: number): Registration | null {
  const registration = user?.registration ?? null;
  if (user === undefined || user.disabled || registration === null) return null;
  return registration.secretKey.length === secretKeyBytes && nowMs < timeMs(registration.endsAt) ? registration : null;
}

/** Whether the user of that id may have a registration beside those that others have. RG3 */
export function hasRoomForRegistration(users: Iterable<User>, id: string, nowMs: number): boolean {
  let others = 0;
  for (const user of users) {
    if (user.id !== id && user.registration !== null && nowMs < timeMs(user.registration.endsAt)) others += 1;
  }
  return others < registrationsMax;
}

/** Whether it is the same registration still, after time in which another may have been made or this one used. */
export function isSameRegistration(left: Registration | null, right: Registration | null): boolean {
  if (left === null || right === null) return left === right;
  return (
    left.secretKey.length === right.secretKey.length && left.secretKey.every((byte, at) => byte === right.secretKey[at])
  );
}
