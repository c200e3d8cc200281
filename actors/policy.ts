/**
 * The Policy service, on every manager: calculates for each node that follows here what its dataplane is to know, from this
 * process's replica, and streams it. While nobody follows, nothing is calculated and nothing kept.
 *
 * PL1: a node is told nothing older than what it was told before, by whatever manager, unless nobody
 *      has that any more.
 * PL2: what a node does not read makes nothing grow: its view keeps only that something changed.
 */
import { PolicyFeed } from "../machines/policy/feed.ts";
import { PolicyGraph } from "../machines/policy/graph.ts";
import type { NodeView } from "../machines/policy/node-view.ts";
import { reportKind } from "../machines/policy/objects.ts";
import { piecesOf } from "../machines/policy/pieces.ts";
import { isSameMessage } from "../machines/same-message.ts";
import {
  Annotations,
  Any,
  DataplaneReport,
  DataplaneReportAnswer,
  Operation,
  ProposeRequest_Mode,
  Resource,
  StoreObject,
  type DataplaneUpdate,
  type PolicyService,
} from "../proto/gen/messages.ts";
import type { Subscription, TimerHandle } from "../runtime/ports.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../runtime/rpc.ts";
import type { ObjectChange } from "../runtime/store/store.ts";
import type { Environment, Running } from "./environment.ts";

/** Between two updates of a node, in milliseconds: Felix's own pace. What happens meanwhile is one update. */
const paceMs = 10;
/** What may wait for a node to read it, in bytes; beyond, its changes are merged instead of sent. */
const unreadBytesMax = 256 * 1024;
/** Between two looks whether the node has read, or the replica caught up, in milliseconds. */
const lookMs = 50;
/** After so long, in milliseconds, nobody has what the node was told: the log was lost and begun anew. */
const behindMsMax = 30_000;
/** How long a report looks for the ledger, in milliseconds. */
const reportTimeoutMs = 10_000;

export interface PolicyActor extends Running {
  readonly handlers: ServiceHandlers<typeof PolicyService>;
}

/** What the graph is fed with, for as long as somebody follows. */
interface Calculation {
  readonly graph: PolicyGraph;
  readonly watching: Subscription;
  followers: number;
}

/** `isCurrent`: whether this manager's replica has caught up with the log. */
export function createPolicy(env: Environment, isCurrent: () => boolean): PolicyActor {
  const { clock, proposer, store, telemetry } = env;
  const streams = new Set<() => void>();
  const gauge = telemetry.metrics.gauge(
    "muster_policy_followers",
    "Nodes whose network policy this manager calculates.",
  );
  let calculation: Calculation | null = null;
  let isStopped = false;

  function calculate(): Calculation {
    const graph = new PolicyGraph();
    const feed = new PolicyFeed(graph, {
      task: (id) => store.get("task", id),
      service: (id) => store.get("service", id),
      node: (id) => store.get("node", id),
      nodes: () => store.all("node"),
      tasksByService: (id) => store.tasksByService(id),
      tasksByNode: (id) => store.tasksByNode(id),
    });
    for (const node of store.all("node")) feed.nodeChanged(null, node);
    for (const service of store.all("service")) feed.serviceChanged(null, service);
    for (const task of store.all("task")) feed.taskChanged(null, task);
    for (const manager of store.all("manager")) feed.managerChanged(null, manager);
    for (const resource of store.all("resource")) feed.resourceChanged(null, resource);
    const watching = store.watch(({ changes }) => {
      for (const change of changes) take(feed, change);
    });
    return { graph, watching, followers: 0 };
  }

  function follow(nodeId: string, known: number, sink: Sink<DataplaneUpdate>, call: CallContext): void {
    let view: NodeView | null = null;
    let timer: TimerHandle | null = null;
    let isOver = false;
    const begunMs = clock.now();

    const wait = (ms: number): void => {
      timer = clock.setTimeout(look, ms);
    };
    const begin = (): NodeView => {
      calculation ??= calculate();
      calculation.followers += 1;
      gauge.set(calculation.followers);
      return calculation.graph.follow(nodeId, () => {
        if (timer === null) wait(paceMs);
      });
    };
    function look(): void {
      timer = null;
      if (isOver) return;
      // PL1, PL2
      const isBehind = store.version < known && clock.now() - begunMs < behindMsMax;
      if (!isCurrent() || isBehind || sink.bufferedBytes() > unreadBytesMax) {
        wait(lookMs);
        return;
      }
      view ??= begin();
      const update = view.take(store.version);
      if (update !== null) for (const piece of piecesOf(update)) sink.write(piece);
    }
    const end = (): void => {
      if (isOver) return;
      isOver = true;
      streams.delete(stop);
      if (timer !== null) clock.clearTimeout(timer);
      if (view === null || calculation === null) return;
      calculation.graph.unfollow(view);
      calculation.followers -= 1;
      gauge.set(calculation.followers);
      if (calculation.followers > 0) return;
      calculation.watching.unsubscribe();
      calculation = null;
    };
    const stop = (): void => {
      end();
      sink.end(new RpcError(Status.UNAVAILABLE, "the manager is stopped"));
    };
    streams.add(stop);
    call.signal.addEventListener("abort", end, { once: true });
    if (call.signal.aborted) end();
    else look();
  }

  /** Written only when it says something new: most of what happens on a node is no news to the cluster. */
  async function keep(nodeId: string, report: DataplaneReport): Promise<void> {
    const before = store.get("resource", nodeId);
    const payload = Any.create({
      type_url: "type.googleapis.com/muster.v1.DataplaneReport",
      value: DataplaneReport.encode(report),
    });
    if (before !== undefined && isSameMessage(before.payload?.value, payload.value)) return;
    const resource =
      before === undefined
        ? Resource.create({
            id: nodeId,
            annotations: Annotations.create({ name: `${reportKind}.${nodeId}` }),
            kind: reportKind,
            payload,
          })
        : Resource.patch(before, { payload });
    const object = StoreObject.create({ resource });
    const operation = Operation.create(before === undefined ? { create: object } : { update: object });
    const outcome = await proposer.propose({
      operations: [operation],
      mode: ProposeRequest_Mode.ATOMIC,
      timeoutMs: reportTimeoutMs,
    });
    if (outcome.kind !== "committed") throw new RpcError(Status.UNAVAILABLE, outcome.message);
  }

  function callerOf({ peer: { identity } }: CallContext): string {
    if (isStopped) throw new RpcError(Status.UNAVAILABLE, "the manager is stopped");
    if (identity === null) throw new RpcError(Status.PERMISSION_DENIED, "only nodes have a dataplane");
    return identity.nodeId;
  }

  return {
    handlers: {
      Follow: ({ version }, sink, call) => follow(callerOf(call), version, sink, call),
      Report: async (report, call) => {
        const nodeId = callerOf(call);
        if (store.get("node", nodeId) === undefined) throw new RpcError(Status.NOT_FOUND, `no node ${nodeId}`);
        await keep(nodeId, report);
        return DataplaneReportAnswer.create({});
      },
    },
    stop: () => {
      isStopped = true;
      for (const stop of streams) stop();
    },
  };
}

function take(feed: PolicyFeed, change: ObjectChange): void {
  const isGone = change.action === "remove";
  switch (change.table) {
    case "task":
      return feed.taskChanged(isGone ? change.object : change.old, isGone ? null : change.object);
    case "service":
      return feed.serviceChanged(isGone ? change.object : change.old, isGone ? null : change.object);
    case "node":
      return feed.nodeChanged(isGone ? change.object : change.old, isGone ? null : change.object);
    case "resource":
      return feed.resourceChanged(isGone ? change.object : change.old, isGone ? null : change.object);
    case "manager":
      return feed.managerChanged(isGone ? change.object : change.old, isGone ? null : change.object);
    default:
  }
}
