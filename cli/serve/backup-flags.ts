/** Flags of managers that back up the cluster by themselves. */
import { resolve } from "node:path";
import { UsageError } from "../../lib/user-error.ts";
import type { ScheduledBackups } from "../../processes/manager.ts";
import { wrappingOf } from "../backup/keys.ts";
import { parsePositiveDuration } from "../values.ts";

export const backupFlags = {
  "backup-dir": {
    type: "string",
    value: "DIR",
    help: "Back up the cluster to this directory on a schedule (default: off)",
  },
  "backup-every": { type: "string", value: "DURATION", help: "Interval of these backups, 1m to 480h (default 24h)" },
  "backup-keep": { type: "string", value: "NUMBER", help: "Number of these backups to keep (default 7)" },
  "backup-history": { type: "boolean", help: "Include the history in these backups" },
  "backup-passphrase-file": {
    type: "string",
    value: "FILE",
    help: "File whose first line is the passphrase of these backups",
    completes: "file",
  },
  "backup-recipient": {
    type: "string",
    multiple: true,
    value: "AGE",
    help: "Public key of age (age1…) to encrypt these backups for, instead of a passphrase",
  },
} as const;

export interface BackupValues {
  readonly "backup-dir"?: string | undefined;
  readonly "backup-every"?: string | undefined;
  readonly "backup-keep"?: string | undefined;
  readonly "backup-history"?: boolean | undefined;
  readonly "backup-passphrase-file"?: string | undefined;
  readonly "backup-recipient"?: readonly string[] | undefined;
}

const everyMsDefault = 24 * 3_600_000;
/** A timer of Node takes at most 24.8 days. */
const everyMsMax = 480 * 3_600_000;
const everyMsMin = 60_000;
const keepDefault = 7;
const keepMax = 10_000;

/** Rejects with UsageError and UserError. */
export async function scheduledBackupsOf(values: BackupValues): Promise<ScheduledBackups | null> {
  const { "backup-dir": dir, "backup-every": every, "backup-history": history = false, "backup-keep": kept } = values;
  if (dir === undefined) {
    for (const flag of ["every", "keep", "history", "passphrase-file", "recipient"] as const)
      if (values[`backup-${flag}`] !== undefined) throw new UsageError(`--backup-${flag} requires --backup-dir`);
    return null;
  }
  const everyMs = every === undefined ? everyMsDefault : millisecondsOf(every);
  if (everyMs < everyMsMin || everyMs > everyMsMax)
    throw new UsageError(`invalid argument "${every}" for "--backup-every" flag: expected 1m to 480h`);
  const keep = kept === undefined ? keepDefault : /^\d{1,5}$/.test(kept) ? Number(kept) : 0;
  if (keep < 1 || keep > keepMax)
    throw new UsageError(`invalid argument "${kept}" for "--backup-keep" flag: expected 1 to ${keepMax}`);
  const wrapping = await wrappingOf(
    { "passphrase-file": values["backup-passphrase-file"], recipient: values["backup-recipient"] },
    { passphrase: "--backup-passphrase-file", recipient: "--backup-recipient" },
  );
  return { dir: resolve(dir), everyMs, keep, history, wrapping };
}

function millisecondsOf(text: string): number {
  const { nanos, seconds } = parsePositiveDuration(text, "backup-every");
  return seconds * 1_000 + nanos / 1e6;
}
