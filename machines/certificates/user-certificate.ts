/** How long users' certificates are valid. */
import { invalid, type Refusal } from "../refusal.ts";

const hourS = 3_600;

/** In seconds: a login in the morning lasts until the evening. */
const userCertificateSecondsDefault = 12 * hourS;
/** In seconds: 30 days. Programs that use certificates need a person to renew them this often. */
export const userCertificateSecondsMax = 30 * 24 * hourS;
/** In seconds: a shorter lifetime would expire before the user has typed a command. */
export const userCertificateSecondsMin = 60;

/** `seconds`: the requested lifetime; 0 means the default. */
export function userCertificateSeconds(seconds: number): number {
  return seconds === 0 ? userCertificateSecondsDefault : seconds;
}

export function checkUserCertificateSeconds(seconds: number): Refusal | null {
  const asked = userCertificateSeconds(seconds);
  return asked < userCertificateSecondsMin || asked > userCertificateSecondsMax
    ? invalid(`invalid lifetime of a user certificate: expected ${userCertificateSecondsMin} s to 30 days`)
    : null;
}
