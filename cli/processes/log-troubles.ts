/** Reports what the link to NATS, and the disk under a nats-server of our own, say about the log. */
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import type { NatsLink } from "../../runtime/nats/connection.ts";
import { nearlyFullSentence } from "../../runtime/nats/disk-room.ts";
import { jetStreamOff } from "../../runtime/nats/jetstream.ts";
import type { NatsServer } from "../../runtime/nats/server.ts";
import type { Troubles } from "../../runtime/troubles.ts";

const lookMs = 1_000;
/** A stream leader that was killed is silent for as long as the next one's election takes. */
const unservedMsMin = 10_000;

/** `server`: our own; null when the NATS is another's. */
export function reportLogTroubles(
  troubles: Troubles,
  link: Pick<NatsLink, "unserved" | "fullReason">,
  server: NatsServer | null,
): { stop(): void } {
  const look = (): void => {
    const full = link.fullReason();
    const room = server?.disk.room;
    if (full !== null) troubles.raise({ kind: Trouble_Kind.DISK_FULL, sentence: full, blocking: true });
    else if (room?.kind === "scarce")
      troubles.raise({ kind: Trouble_Kind.DISK_FULL, sentence: nearlyFullSentence(room), blocking: false });
    else troubles.clear(Trouble_Kind.DISK_FULL);

    const silence = link.unserved();
    if (silence?.reason === jetStreamOff) {
      const sentence = `${jetStreamOff}, as after an error of its disk: it has to be started again`;
      troubles.raise({ kind: Trouble_Kind.LOG_OFF, sentence, blocking: true });
    } else troubles.clear(Trouble_Kind.LOG_OFF);

    if (server?.isRunning === true && silence !== null && silence.ms >= unservedMsMin) {
      const seconds = Math.floor(silence.ms / 1_000);
      const sentence = `nats-server (process ${server.pid}) runs but has answered nothing for ${seconds} s (${silence.reason})`;
      troubles.raise({ kind: Trouble_Kind.SERVER_STUCK, sentence, blocking: true });
    } else troubles.clear(Trouble_Kind.SERVER_STUCK);
  };
  const timer = setInterval(look, lookMs);
  return { stop: () => clearInterval(timer) };
}
