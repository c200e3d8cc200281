/** How long users' certificates are valid. */
import { invalid, type Refusal } from "../refusal.ts";

const hourS = 3_600;

/** A working day and the evening after it, in seconds: whoever logged in in the morning is not asked again before the next one. */
export const userCertificateSecondsDefault = 12 * hourS;
/** In seconds: 30 days. Programs that work by certificate get a new one by a person's hand so often. */
export const userCertificateSecondsMax = 30 * 24 * hourS;
/** In seconds: less would be over before somebody has typed a command. */
export const userCertificateSecondsMin = 60;

/** `seconds`: what was asked for; 0 stands for the default. */
export function userCertificateSeconds(seconds: number): number {
  return seconds === 0 ? userCertificateSecondsDefault : seconds;
}

export function checkUserCertificateSeconds(seconds: number): Refusal | null {
  const asked = userCertificateSeconds(seconds);
  return asked < userCertificateSecondsMin || asked > userCertificateSecondsMax
    ? invalid(`the lifetime of a user's certificate is from ${userCertificateSecondsMin} s to 30 days`)
    : null;
}
