/** The ring of a process, as readers of recordings see it (`kept-recording.ts`). */
import { RecordingPart } from "../../proto/gen/messages.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import type { RecordingRing } from "../../runtime/recording/ring.ts";
import type { KeptRecording } from "./kept-recording.ts";

export function keptRecording(ring: RecordingRing, clock: Pick<Clock, "now">): KeptRecording {
  return {
    *parts(sinceMs) {
      for (const part of ring.parts(sinceMs === 0 ? 0 : clock.now() - sinceMs)) yield RecordingPart.decode(part);
    },
  };
}
