/**
 * The state of the cluster's view: objects listed once and then watched. Changes are drawn at most ten times a second. While a
 * moment of the past is shown, they are the objects of that moment, read from the history (`Operator.ReadAt`), and nothing can be
 * changed.
 *
 * A watch begins before the lists are asked for, so nothing falls between them; changes that arrive first wait for the lists.
 */
import { computed, effect, signal, untracked } from "@preact/signals";
import {
  ControlService,
  ListNetworksRequest,
  ListNodesRequest,
  ListServicesRequest,
  ListTasksRequest,
  OperatorService,
  ReadAtRequest,
  Timestamp,
  WatchMessage,
  WatchRequest,
  WatchRequest_WatchEntry,
  WatchService,
  type MethodDescriptor,
  type WatchActionKind,
  type WatchMessage_Event,
} from "../proto/gen/cluster.ts";
import { TimelineChangesRequest, TimelineService } from "../proto/gen/page.ts";
import { asked, streamed } from "./asks.ts";
import { CallError, LostCallError } from "./model/call-error.ts";
import { eventLine, eventsMax, pastLines, type EventLine, type PastChanges } from "./model/cluster/events.ts";
import { failureText } from "./model/cluster/failures.ts";
import { nodeNames } from "./model/cluster/nodes.ts";
import { ClusterObjects } from "./model/cluster/objects.ts";
import { may, type Action } from "./model/cluster/permissions.ts";
import { link, moment } from "./state.ts";

/** Milliseconds between drawings of changed objects: a rollout of thousands of tasks should leave time for the reader's clicks. */
const drawTickMs = 100;
/** Milliseconds until a watch that the server has ended is begun again. */
const retryMs = 2_000;
/** Create, update and remove. */
const everyAction = 7 as WatchActionKind;

const liveObjects = new ClusterObjects();
const pastObjects = signal<ClusterObjects | null>(null);
/** The objects that views show. */
export const objects = computed(
  () => (moment.value === null ? liveObjects : pastObjects.value) ?? new ClusterObjects(),
);
/** Changes with the shown objects. */
export const version = signal(0);
const liveEvents = signal<readonly EventLine[]>([]);
const pastEvents = signal<readonly EventLine[]>([]);
/** Newest first. In the past, only of a recording: those up to the moment that is shown. */
export const events = computed(() => (moment.value === null ? liveEvents.value : pastEvents.value));
/** `loading`: nothing is known yet. `stale`: what is shown is from before. */
interface Sync {
  readonly state: "loading" | "live" | "stale";
  readonly text: string;
}
const liveSync = signal<Sync>({ state: "loading", text: "" });
const pastSync = signal<Sync>({ state: "loading", text: "" });
export const sync = computed(() => (moment.value === null ? liveSync.value : pastSync.value));
export const isLive = computed(() => link.value.state === "live");
const role = signal("");
/** Whether the role allows an action; while there is no connection, by the role before. Never in the past. */
export const offers = (action: Action): boolean => moment.value === null && may(role.value, action);
/** Names of nodes. */
export const nodeName = computed(() => {
  void version.value;
  return nodeNames(objects.value.nodes.values());
});

/** Never aborted. */
const untilAnswered = new AbortController().signal;

/** Rejects with CallError. */
export const unary = <Request, Response>(
  method: MethodDescriptor<Request, Response>,
  request: Request,
): Promise<Response> => asked(method, request, untilAnswered);

/** A question about the moment that is shown. Rejects with CallError. */
export async function read<Request, Response>(
  method: MethodDescriptor<Request, Response>,
  request: Request,
): Promise<Response> {
  const atMs = moment.peek();
  if (atMs === null) return unary(method, request);
  const time = Timestamp.create({ seconds: Math.floor(atMs / 1_000), nanos: Math.floor(atMs % 1_000) * 1e6 });
  const { response } = await unary(
    OperatorService.methods.ReadAt,
    ReadAtRequest.create({ time, method: method.path, request: method.request.encode(request) }),
  );
  return method.response.decode(response);
}

/** Timer of the next drawing; null: none is due. */
let drawing: ReturnType<typeof setTimeout> | null = null;
let waitingLines: EventLine[] = [];
let lineNumber = 0;

function changed(): void {
  drawing ??= setTimeout(() => {
    drawing = null;
    version.value += 1;
    if (waitingLines.length === 0) return;
    liveEvents.value = [...waitingLines.toReversed(), ...liveEvents.peek()].slice(0, eventsMax);
    waitingLines = [];
  }, drawTickMs);
}

function apply(batch: readonly WatchMessage_Event[]): void {
  const names = nodeNames(liveObjects.nodes.values());
  for (const event of batch) {
    const change = liveObjects.apply(event);
    if (change === null) continue;
    const line = eventLine(change, lineNumber + 1, Date.now(), names);
    if (line === null) continue;
    lineNumber += 1;
    waitingLines.push(line);
  }
  waitingLines = waitingLines.slice(-eventsMax);
  changed();
}

/** Lists all objects, now or at the moment that is shown. */
async function list(into: ClusterObjects, ask: typeof read): Promise<void> {
  const { methods } = ControlService;
  const [{ nodes }, { services }, { tasks }, { networks }] = await Promise.all([
    ask(methods.ListNodes, ListNodesRequest.create()),
    ask(methods.ListServices, ListServicesRequest.create()),
    ask(methods.ListTasks, ListTasksRequest.create()),
    ask(methods.ListNetworks, ListNetworksRequest.create()),
  ]);
  into.list({ nodes, services, tasks, networks });
}

/** The watch in progress. */
let following: AbortController | null = null;

function stale(text: string): void {
  const { state } = liveSync.peek();
  liveSync.value = { state: state === "loading" ? "loading" : "stale", text };
}

async function follow(): Promise<void> {
  following?.abort();
  const mine = new AbortController();
  following = mine;
  /** Null: the lists have come. */
  let waiting: WatchMessage_Event[] | null = [];
  let isBegun = false;
  /** The error of the lists, which also ends the watch. */
  let failure: unknown = null;
  const entries = ["node", "service", "task", "network"].map((kind) =>
    WatchRequest_WatchEntry.create({ kind, action: everyAction }),
  );
  const begin = async (): Promise<void> => {
    await list(liveObjects, unary);
    const early = waiting ?? [];
    waiting = null;
    liveSync.value = { state: "live", text: "" };
    apply(early);
  };
  try {
    await streamed(
      WatchService.methods.Watch,
      WatchRequest.create({ entries }),
      (message) => {
        if (waiting === null) apply(message.events);
        else waiting.push(...message.events);
        if (isBegun) return;
        // The first message: every later change is reported.
        isBegun = true;
        begin().catch((error: unknown) => {
          failure = error;
          mine.abort();
        });
      },
      mine.signal,
    );
    failure = new Error("the manager has ended the watch");
  } catch (error) {
    failure ??= error;
  }
  if (following !== mine) return;
  following = null;
  if (failure instanceof LostCallError) {
    stale("The objects shown are from before the connection was lost, and nothing can be changed.");
  } else if (failure instanceof CallError && failure.isUnknownMethod) {
    stale("This server does not keep the objects of the cluster. The view of actors shows what it has.");
  } else {
    stale(failureText("follow the cluster's changes", failure));
    setTimeout(() => {
      if (isLive.peek() && following === null) void follow();
    }, retryMs);
  }
}

/** Throws CallError. */
async function changesUpTo(atMs: number): Promise<readonly PastChanges[]> {
  const { Changes } = TimelineService.methods;
  const { changes } = await unary(Changes, TimelineChangesRequest.create({ atMs, limit: eventsMax }));
  return changes.map(({ atMs: writtenMs, message }) => ({ atMs: writtenMs, ...WatchMessage.decode(message) }));
}

async function readPast(atMs: number): Promise<void> {
  pastSync.value = { state: pastObjects.peek() === null ? "loading" : "live", text: "" };
  const found = new ClusterObjects();
  let lines: readonly EventLine[] = [];
  let text = "";
  try {
    const [changes] = await Promise.all([isRecording.value ? changesUpTo(atMs) : [], list(found, read)]);
    lines = pastLines(changes, nodeNames(found.nodes.values()));
  } catch (error) {
    text =
      error instanceof CallError && error.isUnknownMethod
        ? "This server does not keep the objects of the cluster. The view of actors shows what it has."
        : failureText("read the cluster at that moment", error);
  }
  if (moment.peek() !== atMs) return;
  pastObjects.value = text === "" ? found : null;
  pastEvents.value = lines;
  pastSync.value = { state: text === "" ? "live" : "loading", text };
  changed();
}

const isRecording = computed(() => link.value.state === "live" && link.value.hello.isRecording);
let isStarted = false;

/** Follows the cluster from the first time that its view is shown, so that its events have no gaps while another view is. */
export function startCluster(): void {
  if (isStarted) return;
  isStarted = true;
  effect(() => {
    const { value } = link;
    if (value.state !== "live") return;
    role.value = value.hello.role;
    // Nothing changes in a recording any more.
    if (!isRecording.value) untracked(() => void follow());
  });
  effect(() => {
    const { value } = moment;
    if (value === null) pastObjects.value = null;
    else if (isLive.value) untracked(() => void readPast(value));
  });
}
