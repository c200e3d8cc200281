/** What the managers say in their beats of nodes that they miss: sentences, as long as they are said. */
import { ManagerBeat } from "../../proto/gen/messages.ts";
import { managerBeats } from "../../runtime/subjects.ts";
import { busMessage } from "../bus-message.ts";
import type { Environment, Running } from "../environment.ts";

/** What a manager said counts for so many milliseconds: five of its beats. */
export const doubtMs = 5_000;

export interface NodeDoubts extends Running {
  /** What is said now; empty while every manager hears its nodes. */
  told(): readonly string[];
}

/** `onDoubt`: a manager has said that it misses nodes, or still does. */
export function startNodeDoubts(
  { bus, clock, telemetry }: Pick<Environment, "bus" | "clock" | "telemetry">,
  onDoubt: () => void,
): NodeDoubts {
  const doubts = new Map<string, { readonly text: string; readonly atMs: number }>();
  const beats = bus.subscribe(managerBeats, (message) => {
    const beat = busMessage({ clock, telemetry }, ManagerBeat, message);
    if (beat === null || (beat.missingNodes === 0 && !beat.holdsVerdicts)) return;
    const text = beat.holdsVerdicts
      ? `manager ${beat.managerId} misses ${beat.missingNodes} nodes and distrusts its view of them`
      : `manager ${beat.managerId} misses ${beat.missingNodes} nodes`;
    doubts.set(beat.managerId, { text, atMs: clock.monotonic() });
    onDoubt();
  });
  return {
    told() {
      const nowMs = clock.monotonic();
      const told: string[] = [];
      for (const [managerId, doubt] of doubts) {
        if (nowMs - doubt.atMs > doubtMs) doubts.delete(managerId);
        else told.push(doubt.text);
      }
      return told;
    },
    stop: () => beats.unsubscribe(),
  };
}
