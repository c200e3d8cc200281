/** Backups that a manager takes by itself: hosts `machines/manager/backup-schedule.machine.ts`. */
import { backupScheduleMachine } from "../../machines/manager/backup-schedule.machine.ts";
import { Trouble_Kind, type BackupPart } from "../../proto/gen/messages.ts";
import type { BackupStore } from "../../runtime/ports/backup-store.ts";
import type { Troubles } from "../../runtime/ports/troubles.ts";
import type { Environment, Running } from "../environment.ts";
import { clusterOf } from "../manager/bootstrap.ts";
import { sentence } from "../sentence.ts";
import type { BackupRequest } from "./parts.ts";

interface ScheduleParts {
  readonly backups: BackupStore;
  /** Name of the place, for the operator. */
  readonly place: string;
  readonly everyMs: number;
  /** Number of backups to keep; at least 1. */
  readonly keep: number;
  readonly history: boolean;
  readonly troubles: Troubles;
  parts(request: BackupRequest): AsyncIterable<BackupPart>;
}

/** To be started once the manager is ready: its cluster exists. */
export function startBackupSchedule(env: Environment, parts: ScheduleParts): Running {
  const { clock, telemetry } = env;
  const { backups, everyMs, history, keep, place, troubles } = parts;
  const { metrics } = telemetry;
  const taken = metrics.counter("muster_backups_total", "Backups that this manager took on its schedule, by outcome.");
  const newest = metrics.gauge(
    "muster_backup_last_success_timestamp_seconds",
    "Time of the newest backup in the folder of this manager.",
  );
  const duration = metrics.histogram("muster_backup_duration_seconds", "Time that a backup on the schedule took.");
  const size = metrics.gauge("muster_backup_size_bytes", "Size of the last backup on the schedule.");
  const stopping = new AbortController();
  const clusterId = clusterOf(env)?.id ?? "";

  const takeBackup = async (): Promise<void> => {
    const begun = clock.monotonic();
    const atMs = clock.now();
    const bytes = await backups.write(clusterId, atMs, parts.parts({ history, signal: stopping.signal }));
    duration.observe((clock.monotonic() - begun) / 1_000);
    size.set(bytes);
    newest.set(Math.floor(atMs / 1_000));
    telemetry.log.info({ bytes, place }, "took a backup");
  };

  /** BS2 */
  const removeOld = async (): Promise<void> => {
    for (const { name } of (await backups.list(clusterId)).slice(keep)) await backups.remove(name);
  };

  const hosted = env.host.start(
    backupScheduleMachine,
    "backup-schedule",
    { everyMs },
    {
      effects: {
        readFolder: (_, self) => {
          backups.list(clusterId).then(
            ([last]) => {
              if (last !== undefined) newest.set(Math.floor(last.atMs / 1_000));
              self.send({ type: "folder.read", newestAgoMs: last === undefined ? null : clock.now() - last.atMs });
            },
            (error: unknown) => self.send({ type: "folder.failed", reason: sentence(error) }),
          );
        },
        takeBackup: (_, self) => {
          takeBackup().then(
            () => self.send({ type: "backup.taken" }),
            (error: unknown) => {
              if (!stopping.signal.aborted) self.send({ type: "backup.failed", reason: sentence(error) });
            },
          );
        },
        removeOld: () => {
          removeOld().catch((error: unknown) =>
            telemetry.log.warn({ error: String(error), place }, "cannot remove old backups"),
          );
        },
        reportFailure: ({ reason }) => {
          taken.add(1, { outcome: "failed" });
          telemetry.log.error({ place, reason }, "a backup failed");
          const said = `the last backup to ${place} failed (${reason}): it is tried again every few minutes`;
          troubles.raise({ kind: Trouble_Kind.BACKUP_FAILED, sentence: said, blocking: false });
        },
        reportSuccess: () => {
          taken.add(1, { outcome: "taken" });
          troubles.clear(Trouble_Kind.BACKUP_FAILED);
        },
      },
    },
  );
  return {
    stop: () => {
      stopping.abort();
      hosted.stop();
    },
  };
}
