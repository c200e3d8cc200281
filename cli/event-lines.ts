/** What is printed of a change of an object: one line for people, or one of JSON. */
import { taskName } from "../machines/list-filters.ts";
import {
  NodeStatus_State,
  Object as Watched,
  WatchActionKind,
  type Task,
  type WatchMessage_Event,
} from "../proto/gen/messages.ts";
import { stateName } from "./task-table.ts";
import { millisecondsOf } from "./values.ts";

export const eventKinds = [
  "node",
  "service",
  "task",
  "network",
  "secret",
  "config",
  "volume",
  "cluster",
  "extension",
  "resource",
] as const;
export type EventKind = (typeof eventKinds)[number];

const actions: { readonly [Action in WatchActionKind]: string } = {
  [WatchActionKind.WATCH_ACTION_UNKNOWN]: "unknown",
  [WatchActionKind.WATCH_ACTION_CREATE]: "create",
  [WatchActionKind.WATCH_ACTION_UPDATE]: "update",
  [WatchActionKind.WATCH_ACTION_REMOVE]: "remove",
};

function describeTask(task: Task): string {
  const where = task.nodeId === "" ? "" : ` on ${task.nodeId}`;
  const error = task.status?.err ? ` "${task.status.err}"` : "";
  return `${taskName(task)} ${stateName(task.status?.state ?? 0)} (desired ${stateName(task.desiredState)})${where}${error}`;
}

function describe(kind: EventKind, object: Watched): string {
  switch (kind) {
    case "task":
      return object.task === null ? "" : describeTask(object.task);
    case "node": {
      const state = object.node?.status?.state ?? NodeStatus_State.UNKNOWN;
      const name = Object.entries(NodeStatus_State).find(([, value]) => value === state)?.[0] ?? "";
      return `${object.node?.description?.hostname ?? ""} ${name.toLowerCase()}`.trim();
    }
    case "resource":
      return `${object.resource?.annotations?.name ?? ""} (${object.resource?.kind ?? ""})`.trim();
    case "extension":
      return object.extension?.annotations?.name ?? "";
    case "service":
    case "network":
    case "secret":
    case "config":
    case "volume":
    case "cluster":
      return object[kind]?.spec?.annotations?.name ?? "";
  }
}

export interface EventLine {
  readonly version: number;
  readonly asJson: boolean;
  /** Whether the line for people says the version. */
  readonly showsVersion: boolean;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** By the names of `docker events --format`, and the object itself as `object`. Null as `eventLine`. */
export function eventFields(event: WatchMessage_Event, version: number, now: number): Record<string, unknown> | null {
  const line = eventLine(event, { version, now, asJson: true, showsVersion: false });
  const kind = eventKinds.find((name) => event.object?.[name] != null);
  if (line === null || kind === undefined || event.object === null) return null;
  const { action, id, object, time } = JSON.parse(line) as Record<string, unknown>;
  const ms = Date.parse(String(time));
  return {
    Type: kind,
    Action: action,
    Actor: { ID: id, Attributes: new Map([["name", nameOf(kind, event.object)]]) },
    Scope: "swarm",
    Time: Math.floor(ms / 1_000),
    TimeNano: ms * 1e6,
    Version: version,
    object,
  };
}

function nameOf(kind: EventKind, object: Watched): string {
  if (kind === "task") return object.task === null ? "" : taskName(object.task);
  if (kind === "node") return object.node?.description?.hostname ?? "";
  if (kind === "resource") return object.resource?.annotations?.name ?? "";
  return describe(kind, object);
}

/** Null for an object of a kind that this command does not know. */
export function eventLine(event: WatchMessage_Event, { version, asJson, showsVersion, now }: EventLine): string | null {
  const { object, oldObject } = event;
  const kind = eventKinds.find((name) => object !== null && object[name] !== null);
  if (object === null || kind === undefined) return null;
  const action = actions[event.action];
  const updated = millisecondsOf(object[kind]?.meta?.updatedAt ?? null);
  // A removed object says when it was last changed, not when it went.
  const time = new Date(action === "remove" || updated === null ? now : updated).toISOString();
  const id = object[kind]?.id ?? "";
  if (!asJson) {
    const at = showsVersion ? `${version} ` : "";
    return `${at}${time} ${kind} ${action} ${id} ${describe(kind, object)}`.trimEnd();
  }
  const old = oldObject === null ? {} : { old: Watched.toJson(oldObject)[kind] };
  return JSON.stringify({ time, version, kind, action, id, object: Watched.toJson(object)[kind], ...old });
}
