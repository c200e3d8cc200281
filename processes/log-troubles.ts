/** Raises troubles for problems of the log that the link to NATS, or our own nats-server's disk, reports. */
import { Trouble_Kind } from "../proto/gen/messages.ts";
import type { NatsLink } from "../runtime/nats/connection.ts";
import { nearlyFullSentence } from "../runtime/nats/disk-space.ts";
import type { Laggard } from "../runtime/nats/laggards.ts";
import type { NatsServer } from "../runtime/nats/server.ts";
import { stoppedMsMax } from "../runtime/nats/stuck.ts";
import type { StuckWatch } from "../runtime/nats/stuck-watch.ts";
import type { Troubles } from "../runtime/ports/troubles.ts";

const checkMs = 1_000;
/** After a stream leader is killed, its stream is silent until the next leader is elected. */
const unservedMsMin = 10_000;

const offSentences = {
  server: "the nats-server has disabled JetStream, as it does after a disk error: restart it",
  account: "NATS has JetStream disabled for the account of this manager: enable it in the nats-server's configuration",
};

/** `own`: our nats-server and its monitor; null for an external NATS. */
export function reportLogTroubles(
  troubles: Troubles,
  link: Pick<NatsLink, "unserved" | "fullReason" | "jetStreamOff" | "laggards">,
  own: { readonly server: NatsServer; readonly watch: Pick<StuckWatch, "state"> } | null,
): { stop(): void } {
  const check = (): void => {
    const full = link.fullReason();
    const space = own?.server.disk.space;
    if (full !== null) troubles.raise({ kind: Trouble_Kind.DISK_FULL, sentence: full, blocking: true });
    else if (space?.kind === "scarce")
      troubles.raise({ kind: Trouble_Kind.DISK_FULL, sentence: nearlyFullSentence(space), blocking: false });
    else troubles.clear(Trouble_Kind.DISK_FULL);

    const silence = link.unserved();
    const off = silence === null ? null : link.jetStreamOff();
    if (off !== null) troubles.raise({ kind: Trouble_Kind.LOG_OFF, sentence: offSentences[off], blocking: true });
    else troubles.clear(Trouble_Kind.LOG_OFF);

    const stuck = own?.server.isRunning === true && silence !== null ? stuckSentence(own, silence) : null;
    const behind = link.laggards();
    if (stuck !== null) troubles.raise({ kind: Trouble_Kind.SERVER_STUCK, sentence: stuck, blocking: true });
    else if (behind.length > 0)
      // Not blocking: the other servers may work without it; if not, that raises its own trouble.
      troubles.raise({ kind: Trouble_Kind.SERVER_STUCK, sentence: behindSentence(behind), blocking: false });
    else troubles.clear(Trouble_Kind.SERVER_STUCK);
  };
  const timer = setInterval(check, checkMs);
  return { stop: () => clearInterval(timer) };
}

function behindSentence(behind: readonly Laggard[]): string {
  const names = behind.map(({ name }) => name).join(" and ");
  const seconds = Math.floor(Math.max(...behind.map(({ ms }) => ms)) / 1_000);
  return behind.length === 1
    ? `nats-server ${names} accepts clients but has not followed the log for ${seconds} s: check its disk and restart it`
    : `nats-servers ${names} accept clients but have not followed the log for ${seconds} s: check their disks and restart them`;
}

/** Null while the silence may have another cause. */
function stuckSentence(
  { server, watch }: { readonly server: NatsServer; readonly watch: Pick<StuckWatch, "state"> },
  { ms, reason }: { readonly ms: number; readonly reason: string },
): string | null {
  const process = `nats-server (process ${server.pid})`;
  const seconds = Math.floor(ms / 1_000);
  if (watch.state === "stopped") {
    return `${process} is stopped by a signal and has not answered for ${seconds} s: continue it, or it is restarted after ${stoppedMsMax / 1_000} s`;
  }
  return ms < unservedMsMin ? null : `${process} is running but has not answered for ${seconds} s (${reason})`;
}
