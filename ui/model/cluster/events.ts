/** Changes of the cluster as lines, without those in which a reader sees no difference. */
import { NodeSpec_Availability, type WatchMessage_Event } from "../../../proto/gen/cluster.ts";
import { availabilityName, availabilityOf, nodeState } from "./nodes.ts";
import { changeOf, type Change } from "./objects.ts";
import { rolloutText, serviceName } from "./services.ts";
import { isEnded, isWanted, stateName, stateOf, taskName } from "./tasks.ts";

/** Lines kept: half an hour of a busy cluster. The oldest are dropped. */
export const eventsMax = 500;

export interface EventLine {
  /** From 1, in the order of arrival. */
  readonly number: number;
  /** When the page learned of it, or when it was written in a recording, in milliseconds since the epoch. */
  readonly atMs: number;
  readonly kind: Change["kind"];
  readonly id: string;
  readonly name: string;
  readonly text: string;
  /** A reader should look at it. */
  readonly isBad: boolean;
}

type Described = Pick<EventLine, "name" | "text" | "isBad">;

function described(change: Change, nodeName: (id: string) => string): Described {
  switch (change.kind) {
    case "task": {
      const { object } = change;
      const where = object.nodeId === "" ? "" : ` on ${nodeName(object.nodeId)}`;
      const error = object.status?.err ?? "";
      const leaving = isWanted(object) || isEnded(object) ? "" : ", to stop";
      const state = stateName(stateOf(object));
      return {
        name: taskName(object, nodeName),
        text: `${state}${leaving}${where}${error === "" ? "" : `: ${error}`}`,
        isBad: ["failed", "rejected", "orphaned"].includes(state),
      };
    }
    case "node": {
      const { object } = change;
      const availability = availabilityOf(object);
      const suffix = availability === NodeSpec_Availability.ACTIVE ? "" : `, ${availabilityName(availability)}`;
      const state = nodeState(object);
      const message = object.status?.message ?? "";
      return {
        name: nodeName(object.id),
        text: `${state}${suffix}${message === "" ? "" : `: ${message}`}`,
        isBad: state === "down" || state === "disconnected",
      };
    }
    case "service": {
      const { object } = change;
      const rollout = object.updateStatus?.message ?? "";
      return {
        name: serviceName(object),
        text: `spec ${object.specVersion?.index ?? 0}${rollout === "" ? "" : `: ${rollout}`}`,
        isBad: rolloutText(object).includes("paused"),
      };
    }
    case "network":
      return { name: change.object.spec?.annotations?.name ?? change.object.id, text: "", isBad: false };
  }
}

/** The changes of one transaction. */
export interface PastChanges {
  /** When they were written, in milliseconds since the epoch. */
  readonly atMs: number;
  readonly events: readonly WatchMessage_Event[];
}

/** The lines of changes that are in the order of their times. The newest is first. */
export function pastLines(changes: readonly PastChanges[], nodeName: (id: string) => string): readonly EventLine[] {
  const lines: EventLine[] = [];
  for (const { atMs, events } of changes)
    for (const event of events) {
      const change = changeOf(event);
      const line = change === null ? null : eventLine(change, lines.length + 1, atMs, nodeName);
      if (line !== null) lines.push(line);
    }
  return lines.toReversed();
}

const verbs = { create: "created", remove: "removed" } as const;

/** Null: nothing that the line would say has changed. */
export function eventLine(
  change: Change,
  number: number,
  atMs: number,
  nodeName: (id: string) => string,
): EventLine | null {
  const { action, kind } = change;
  const now = described(change, nodeName);
  const line = { number, atMs, kind, id: change.object.id, name: now.name };
  if (action !== "update") {
    const text = [verbs[action], action === "create" ? now.text : ""].filter(Boolean).join(", ");
    return { ...line, text, isBad: false };
  }
  if (change.before !== undefined) {
    const before = described({ ...change, object: change.before } as Change, nodeName);
    if (before.text === now.text && before.name === now.name) return null;
  }
  return { ...line, text: now.text || "updated", isBad: now.isBad };
}
