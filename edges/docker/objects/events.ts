/**
 * `/events`: changes of the cluster's objects, with the types, actions and attributes of a stock manager, and of the containers
 * of its tasks on every node.
 *
 * EV1: with `since`, a client gets each later change once, also those from before its request, as far back as the log keeps them.
 * EV2: clients with the same question share each event's text.
 * EV3: a client that is cut off since it does not read loses its connection, and with it what waits for it here; so does one that
 *      does not read the rest after its events have ended.
 */
import {
  FindVersionRequest,
  type Node,
  NodeRole,
  NodeSpec_Availability,
  NodeStatus_State,
  OperatorService,
  RaftMemberStatus_Reachability,
  TaskState,
  Timestamp,
  UpdateStatus_UpdateState,
  Version,
  WatchActionKind,
  WatchRequest,
  WatchRequest_WatchEntry,
  WatchService,
  type Meta,
  type Object as Watched,
  type Service,
  type Task,
  type WatchMessage,
  type WatchMessage_Event,
} from "../../../proto/gen/messages.ts";
import { timestampOf as timestampAt } from "../../../proto/time.ts";
import { RpcError, Status } from "../../../runtime/ports/rpc.ts";
import { enumWord } from "../../../lib/docker-objects/values.ts";
import { jsonText } from "../../../lib/template/template.ts";
import { lingerMs } from "../client-stream.ts";
import { badRequest } from "../failure.ts";
import type { Filters } from "../filters.ts";
import { timestampOf } from "../go-text.ts";
import { familiarName } from "../registry.ts";
import { filtersOf, type DockerRequest, type Handler } from "../request.ts";
import { containerOf } from "./containers.ts";

const kinds = ["service", "node", "secret", "config", "network", "task"] as const;
/** Create, update and remove. */
const everyAction = 7 as WatchActionKind;
/** A request that ends in the past is over when nothing more has come for this time, in milliseconds. */
const quietMs = 1_000;

const actions: Readonly<Record<number, string>> = {
  [WatchActionKind.WATCH_ACTION_CREATE]: "create",
  [WatchActionKind.WATCH_ACTION_UPDATE]: "update",
  [WatchActionKind.WATCH_ACTION_REMOVE]: "remove",
};

interface EngineEvent {
  readonly type: string;
  readonly action: string;
  readonly id: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly scope: "swarm" | "local";
  /** In seconds and nanoseconds since the epoch. */
  readonly at: Timestamp;
  readonly text: string;
}

type Attributes = Record<string, string>;

function changed(into: Attributes, name: string, before: string, after: string): void {
  if (before === after) return;
  if (before !== "") into[`${name}.old`] = before;
  if (after !== "") into[`${name}.new`] = after;
}

function nodeAttributes(node: Node, old: Node | null): Attributes {
  const attributes: Attributes = { name: node.description?.hostname ?? "" };
  if (old === null) return attributes;
  const availability = ({ spec }: Node): string =>
    enumWord(NodeSpec_Availability, spec?.availability ?? NodeSpec_Availability.ACTIVE);
  const role = (of: Node): string => enumWord(NodeRole, of.role);
  const state = ({ status }: Node): string => enumWord(NodeStatus_State, status?.state ?? NodeStatus_State.UNKNOWN);
  const reachability = ({ managerStatus }: Node): string =>
    managerStatus === null ? "" : enumWord(RaftMemberStatus_Reachability, managerStatus.reachability);
  const leader = ({ managerStatus }: Node): string => (managerStatus === null ? "" : String(managerStatus.leader));
  changed(attributes, "availability", availability(old), availability(node));
  changed(attributes, "role", role(old), role(node));
  changed(attributes, "state", state(old), state(node));
  changed(attributes, "leader", leader(old), leader(node));
  changed(attributes, "reachability", reachability(old), reachability(node));
  return attributes;
}

function serviceAttributes(service: Service, old: Service | null): Attributes {
  const attributes: Attributes = { name: service.spec?.annotations?.name ?? "" };
  if (old === null) return attributes;
  const image = ({ spec }: Service): string => spec?.task?.container?.image ?? "";
  const replicas = ({ spec }: Service): string => (spec?.replicated == null ? "" : String(spec.replicated.replicas));
  const update = ({ updateStatus }: Service): string =>
    updateStatus === null || updateStatus.state === UpdateStatus_UpdateState.UNKNOWN
      ? ""
      : enumWord(UpdateStatus_UpdateState, updateStatus.state, "_");
  changed(attributes, "image", image(old), image(service));
  changed(attributes, "replicas", replicas(old), replicas(service));
  changed(attributes, "updatestate", update(old), update(service));
  return attributes;
}

function stateOf(task: Task | null): TaskState {
  return task?.status?.state ?? TaskState.NEW;
}

/** The event of the task's container that a change of the task shows; null if it shows none. */
function containerAction(task: Task, old: Task | null, action: string): string | null {
  if (action === "remove") return stateOf(task) >= TaskState.STARTING ? "destroy" : null;
  const [before, now] = [stateOf(old), stateOf(task)];
  if (before < TaskState.STARTING && now === TaskState.STARTING) return "create";
  if (before < TaskState.RUNNING && now === TaskState.RUNNING) return "start";
  return before === TaskState.RUNNING && now > TaskState.RUNNING ? "die" : null;
}

/** A removed object has the time of its last change only: the time of its removal is passed in. */
function timeOf(meta: Meta | null, action: string, removedAt: Timestamp): Timestamp {
  const known = action === "create" ? meta?.createdAt : action === "update" ? meta?.updatedAt : null;
  return known ?? removedAt;
}

function withText(event: Omit<EngineEvent, "text">): EngineEvent {
  const { action, at, attributes, id, scope, type } = event;
  const ofContainer = type === "container" ? { status: action, id, from: attributes["image"] ?? "" } : {};
  // Written in full: the number is larger than what JavaScript counts exactly.
  const nanos = String(at.nanos).padStart(9, "0");
  const time = at.seconds;
  const start = jsonText({
    ...ofContainer,
    Type: type,
    Action: action,
    Actor: { ID: id, Attributes: new Map(Object.entries(attributes)) },
    scope,
    time,
  });
  return { ...event, text: `${start.slice(0, -1)},"timeNano":${time}${nanos}}\n` };
}

function eventOf(
  { backend }: DockerRequest,
  { action: kind, object, oldObject }: WatchMessage_Event,
  removedAt: Timestamp,
): EngineEvent | null {
  const action = actions[kind];
  if (object === null || action === undefined) return null;
  const swarm = (type: string, found: { readonly id: string; readonly meta: Meta | null }, attributes: Attributes) =>
    withText({ type, action, id: found.id, attributes, scope: "swarm", at: timeOf(found.meta, action, removedAt) });
  const { config, network, node, secret, service, task }: Watched = object;
  if (service !== null) return swarm("service", service, serviceAttributes(service, oldObject?.service ?? null));
  if (node !== null) return swarm("node", node, nodeAttributes(node, oldObject?.node ?? null));
  for (const [type, found] of [
    ["secret", secret],
    ["config", config],
    ["network", network],
  ] as const)
    if (found !== null) return swarm(type, found, { name: found.spec?.annotations?.name ?? "" });
  if (task === null) return null;
  const container = containerOf(task, backend.store);
  const seen = containerAction(task, oldObject?.task ?? null, action);
  if (container === null || seen === null) return null;
  const exit = seen === "die" ? { exitCode: String(task.status?.container?.exitCode ?? 0) } : {};
  const attributes = { ...container.labels, image: container.image, name: container.name, ...exit };
  const at = timeOf(task.meta, action, removedAt);
  return withText({ type: "container", action: seen, id: container.id, attributes, scope: "local", at });
}

function passes(filters: Filters, { action, attributes, id, scope, type }: EngineEvent): boolean {
  return (
    filters.allows("event", action) &&
    filters.allows("type", type) &&
    filters.allows("scope", scope) &&
    filters.matchesLabels("label", attributes) &&
    ["container", "daemon", "plugin", "volume", "network", "node", "service", "secret", "config"].every(
      (name) => filters.matchesStart(name, id) || filters.matchesStart(name, attributes["name"] ?? ""),
    ) &&
    [id, attributes["image"] ?? ""].some(
      (image) => filters.allows("image", image) || filters.allows("image", familiarName(image)),
    )
  );
}

/** EV2: by message, which watchers of one question share. */
const shared = new WeakMap<WatchMessage, readonly EngineEvent[]>();

function eventsOf(request: DockerRequest, message: WatchMessage, removedAt: Timestamp): readonly EngineEvent[] {
  const known = shared.get(message);
  if (known !== undefined) return known;
  const events = message.events.map((event) => eventOf(request, event, removedAt)).filter((event) => event !== null);
  shared.set(message, events);
  return events;
}

function msOf({ nanos, seconds }: Pick<Timestamp, "seconds" | "nanos">): number {
  return seconds * 1_000 + nanos / 1e6;
}

/** The version to resume from; null: only what happens from now on. */
async function versionAt({ calls }: DockerRequest, time: Timestamp | null): Promise<number | null> {
  if (time === null) return null;
  try {
    return (await calls.unary(OperatorService.methods.FindVersion, FindVersionRequest.create({ time }))).version;
  } catch (error) {
    // In the future, or before what the log keeps: a stock engine, too, sends what it still has.
    if (error instanceof RpcError && error.code === Status.OUT_OF_RANGE) return null;
    throw error;
  }
}

export const followEvents: Handler = async (request) => {
  const { backend, calls, query, response, signal } = request;
  const since = timestampOf(query.get("since") ?? "");
  const until = timestampOf(query.get("until") ?? "");
  if (since !== null && until !== null && msOf(until) < msOf(since))
    throw badRequest(
      `\`since\` time (${query.get("since") ?? ""}) cannot be after \`until\` time (${query.get("until") ?? ""})`,
    );
  const filters = filtersOf(request);
  const endsMs = until === null ? Number.POSITIVE_INFINITY : msOf(until);
  const isOfPast = endsMs <= backend.clock.now();
  const startsMs = since === null ? 0 : msOf(since);
  const from = await versionAt(request, since === null ? null : Timestamp.create(since));
  if (signal.aborted) return null;
  response.writeHead(200, { "content-type": "application/json" });
  response.flushHeaders();
  if (isOfPast && from === null) {
    response.end();
    return null;
  }
  const ended = Promise.withResolvers<null>();
  const leaving = new AbortController();
  signal.addEventListener("abort", () => leaving.abort(), { once: true });
  const timer = setTimeout(finish, isOfPast ? quietMs : Math.min(endsMs - backend.clock.now(), 2 ** 31 - 1));
  if (endsMs === Number.POSITIVE_INFINITY) clearTimeout(timer);
  function finish(): void {
    clearTimeout(timer);
    leaving.abort();
    response.end();
    // EV3
    const lingering = backend.clock.setTimeout(() => response.destroy(), lingerMs);
    response.once("close", () => backend.clock.clearTimeout(lingering));
    ended.resolve(null);
  }
  leaving.signal.addEventListener("abort", () => ended.resolve(null), { once: true });
  const startedAt = backend.store.version;
  let latest = Timestamp.create(since ?? {});
  const entries = kinds.map((kind) => WatchRequest_WatchEntry.create({ kind, action: everyAction }));
  calls.stream(
    WatchService.methods.Watch,
    WatchRequest.create({
      entries,
      resumeFrom: from === null ? null : Version.create({ index: from }),
      includeOldObject: true,
    }),
    {
      write(message) {
        if (isOfPast) timer.refresh();
        // The time of a replayed removal is not known, only its place among the other changes.
        const isReplayed = (message.version?.index ?? 0) <= startedAt;
        for (const event of eventsOf(request, message, isReplayed ? latest : timestampAt(backend.clock.now()))) {
          latest = event.at;
          const at = msOf(event.at);
          if (at > endsMs) return finish();
          if (at >= startsMs && passes(filters, event)) response.write(event.text);
        }
      },
      end(_error, queued) {
        // EV3
        if (queued === "drop") response.destroy();
        finish();
      },
      bufferedBytes: () => response.writableLength,
    },
    leaving.signal,
  );
  return ended.promise;
};
