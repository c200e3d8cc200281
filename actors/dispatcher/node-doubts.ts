/** Sentences on the missing nodes that managers report in their beats, for as long as they report them. */
import { managerBeats } from "../../runtime/subjects.ts";
import { managerBeatOf } from "../bus-message.ts";
import type { Environment, Running } from "../environment.ts";

/** How long a manager's report is valid, in milliseconds: five of its beats. */
export const doubtMs = 5_000;

interface NodeDoubts extends Running {
  /** Current sentences; empty while every manager hears its nodes. */
  told(): readonly string[];
}

/** `onDoubt`: called when a manager reports missing nodes, each time. */
export function startNodeDoubts(
  { bus, clock, telemetry }: Pick<Environment, "bus" | "clock" | "telemetry">,
  onDoubt: () => void,
): NodeDoubts {
  const doubts = new Map<string, { readonly text: string; readonly atMs: number }>();
  const beats = bus.subscribe(managerBeats, (message) => {
    const beat = managerBeatOf({ clock, telemetry }, message);
    if (beat === null || (beat.missingNodes === 0 && !beat.holdsVerdicts)) return;
    const text = beat.holdsVerdicts
      ? `manager ${beat.managerId} reports ${beat.missingNodes} missing nodes and does not trust its own view`
      : `manager ${beat.managerId} reports ${beat.missingNodes} missing nodes`;
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
