/** Output for a change of an object: one line of text, or one of JSON. */
import { taskName } from "../machines/list-filters.ts";
import {
  NodeStatus_State,
  Object as Watched,
  WatchActionKind,
  type Task,
  type WatchMessage_Event,
} from "../proto/gen/messages.ts";
import { clusterObject } from "../lib/docker-objects/cluster.ts";
import {
  configObject,
  extensionObject,
  networkObject,
  nodeObject,
  resourceObject,
  secretObject,
  serviceObject,
  taskObject,
  volumeObject,
  type DockerObject,
} from "../lib/docker-objects/index.ts";
import { stateName } from "./task/table.ts";
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

interface EventLine {
  readonly version: number;
  readonly asJson: boolean;
  /** Whether the text line includes the version. */
  readonly showsVersion: boolean;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** The object of an event in Docker's format. */
function dockerObject(object: Watched): DockerObject {
  const { cluster, config, extension, network, node, resource, secret, service, task, volume } = object;
  if (node !== null) return nodeObject(node);
  if (service !== null) return serviceObject(service);
  if (task !== null) return taskObject(task);
  if (network !== null) return networkObject(network);
  if (secret !== null) return secretObject(secret);
  if (config !== null) return configObject(config);
  if (volume !== null) return volumeObject(volume);
  if (cluster !== null) return clusterObject(cluster);
  if (extension !== null) return extensionObject(extension);
  return resource === null ? {} : resourceObject(resource);
}

interface EventFields {
  /** Fields by the names of `docker events --format`; `Object` is the object as `inspect` prints it. */
  readonly shown: Readonly<Record<string, unknown>>;
  /** The object with SwarmKit's names, `object` in templates. */
  readonly wire: () => unknown;
}

/** Null in the same cases as `eventLine`. */
export function eventFields(event: WatchMessage_Event, version: number, now: number): EventFields | null {
  const { object } = event;
  const kind = eventKinds.find((name) => object?.[name] != null);
  if (kind === undefined || object === null) return null;
  const ms = timeOf(event, now);
  const shown = {
    Type: kind,
    Action: actions[event.action],
    Actor: { ID: object[kind]?.id ?? "", Attributes: new Map([["name", nameOf(kind, object)]]) },
    Scope: "swarm",
    Time: Math.floor(ms / 1_000),
    TimeNano: ms * 1e6,
    Version: version,
    Object: dockerObject(object),
  };
  return { shown, wire: () => Watched.toJson(object)[kind] };
}

/**
 * Time of the event, in milliseconds since the epoch. For a removal it is now: the object only has the time of its last change.
 */
function timeOf({ action, object }: WatchMessage_Event, now: number): number {
  const kind = eventKinds.find((name) => object?.[name] != null);
  const updated = kind === undefined ? null : millisecondsOf(object?.[kind]?.meta?.updatedAt ?? null);
  return action === WatchActionKind.WATCH_ACTION_REMOVE || updated === null ? now : updated;
}

function nameOf(kind: EventKind, object: Watched): string {
  if (kind === "task") return object.task === null ? "" : taskName(object.task);
  if (kind === "node") return object.node?.description?.hostname ?? "";
  if (kind === "resource") return object.resource?.annotations?.name ?? "";
  return describe(kind, object);
}

/** Null for an object of an unknown kind. */
export function eventLine(event: WatchMessage_Event, { version, asJson, showsVersion, now }: EventLine): string | null {
  const { object, oldObject } = event;
  const kind = eventKinds.find((name) => object !== null && object[name] !== null);
  if (object === null || kind === undefined) return null;
  const action = actions[event.action];
  const time = new Date(timeOf(event, now)).toISOString();
  const id = object[kind]?.id ?? "";
  if (!asJson) {
    const at = showsVersion ? `${version} ` : "";
    return `${at}${time} ${kind} ${action} ${id} ${describe(kind, object)}`.trimEnd();
  }
  const old = oldObject === null ? {} : { old: Watched.toJson(oldObject)[kind] };
  return JSON.stringify({ time, version, kind, action, id, object: Watched.toJson(object)[kind], ...old });
}
