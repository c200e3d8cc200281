/** The Backup service of every manager. */
import type { BackupPart, BackupService } from "../../proto/gen/messages.ts";
import { RpcError, Status, type ServiceHandlers, type Sink } from "../../runtime/ports/rpc.ts";
import { sleep } from "../../runtime/store/wait.ts";
import type { Running } from "../environment.ts";
import { sentence } from "../sentence.ts";
import { backupParts, type BackupRequest, type BackupSources } from "./parts.ts";

/** Backups that one manager makes at a time: each keeps the objects of its version in memory. Beyond: refused. */
const backupsMax = 2;
/** Unread bytes of the client; beyond it the next part waits. */
const clientBytesMax = 1024 * 1024;
/** Interval of checking whether the client has read, in milliseconds. */
const paceMs = 5;

interface Backups extends Running {
  readonly handlers: ServiceHandlers<typeof BackupService>;
  /** For a backup that this process writes itself. Rejects with RpcError. */
  parts(request: BackupRequest): AsyncGenerator<BackupPart>;
}

export function createBackups(sources: BackupSources): Backups {
  const { clock, telemetry } = sources;
  const taking = new Set<Sink<BackupPart>>();
  let isStopped = false;

  async function send(sink: Sink<BackupPart>, request: BackupRequest): Promise<void> {
    for await (const part of backupParts(sources, request)) {
      if (request.signal.aborted || isStopped) return;
      sink.write(part);
      while (sink.bufferedBytes() > clientBytesMax && !request.signal.aborted && !isStopped) await sleep(clock, paceMs);
    }
    sink.end();
  }

  return {
    handlers: {
      Take({ history }, sink, { signal }) {
        if (taking.size >= backupsMax)
          throw new RpcError(
            Status.RESOURCE_EXHAUSTED,
            `this manager already makes ${backupsMax} backups: try again later, or ask another manager`,
          );
        if (signal.aborted) return;
        taking.add(sink);
        void send(sink, { history, signal })
          .catch((error: unknown) => {
            if (error instanceof RpcError) return sink.end(error);
            telemetry.log.error({ err: error }, "cannot make a backup");
            sink.end(new RpcError(Status.INTERNAL, `the manager cannot make the backup: ${sentence(error)}`));
          })
          .finally(() => taking.delete(sink));
      },
    },
    parts: (request) => backupParts(sources, request),
    stop() {
      isStopped = true;
      for (const sink of taking) sink.end(new RpcError(Status.UNAVAILABLE, "the manager is stopping"));
    },
  };
}
