/** `--lifetime` of a user's certificate. */
import { userCertificateSecondsMax, userCertificateSecondsMin } from "../../machines/certificates/user-certificate.ts";
import { UsageError } from "../../lib/user-error.ts";
import { durationMs } from "../../proto/time.ts";
import { parseDuration } from "../values.ts";

export const lifetimeOption = {
  type: "string",
  value: "DURATION",
  help: "Time for which the certificate is valid, from 1m to 720h (default 12h)",
} as const;

/** Seconds; 0 for the default. Throws UsageError. */
export function lifetimeSeconds(text: string | undefined): number {
  if (text === undefined) return 0;
  const seconds = Math.floor(durationMs(parseDuration(text, "lifetime"), 0) / 1_000);
  if (seconds < userCertificateSecondsMin || seconds > userCertificateSecondsMax)
    throw new UsageError(`invalid argument "${text}" for "--lifetime" flag: expected 1m to 720h`);
  return seconds;
}
