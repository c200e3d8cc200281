/**
 * Registrations: how a user who was added without a password sets one (`juju register`). The holder of the secret key proves
 * it once, without a login.
 *
 * RG1: a registration ends when it sets a password, or when the user's password is set in another way.
 * RG2: it expires, and cannot be used while its user is disabled.
 * RG3: at most `registrationsMax` users have a registration at a time.
 */
import { timeMs, timestampOf } from "../../proto/time.ts";
import { Registration, type User } from "../../proto/gen/messages.ts";

/**
 * Lifetime of a key in milliseconds: a day, in which an administrator sends it and a colleague uses it. Juju's keys do not
 * expire.
 */
export const registrationMs = 24 * 3_600_000;
/** Users in the cluster who have yet to register: enough for a class or a company, few enough for a linear search. */
export const registrationsMax = 1_000;
/** A key of NaCl's secretbox. */
export const secretKeyBytes = 32;

/** `secretKey`: `secretKeyBytes` random bytes; `nowMs`: milliseconds since the Unix epoch. */
export function newRegistration(secretKey: Uint8Array, nowMs: number): Registration {
  return Registration.create({ secretKey, endsAt: timestampOf(nowMs + registrationMs) });
}

/** The user's registration if it can be used now, else null. RG2 */
export function usableRegistration(user: User | undefined, nowMs: number): Registration | null {
  const registration = user?.registration ?? null;
  if (user === undefined || user.disabled || registration === null) return null;
  return registration.secretKey.length === secretKeyBytes && nowMs < timeMs(registration.endsAt) ? registration : null;
}

/** Whether the user with that id may have a registration besides those of others. RG3 */
export function hasRoomForRegistration(users: Iterable<User>, id: string, nowMs: number): boolean {
  let others = 0;
  for (const user of users) {
    if (user.id !== id && user.registration !== null && nowMs < timeMs(user.registration.endsAt)) others += 1;
  }
  return others < registrationsMax;
}

/** Whether it is still the same registration, after time in which it may have been used or replaced. */
export function isSameRegistration(left: Registration | null, right: Registration | null): boolean {
  if (left === null || right === null) return left === right;
  return (
    left.secretKey.length === right.secretKey.length && left.secretKey.every((byte, at) => byte === right.secretKey[at])
  );
}
