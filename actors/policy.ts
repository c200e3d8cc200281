/**
 * The Policy service of every manager: calculates the dataplane's policy for each follower node, and stores nodes' reports on
 * their dataplanes.
 */
import { PolicyFeed } from "../machines/policy/feed.ts";
import { PolicyGraph } from "../machines/policy/graph.ts";
import { reportKind } from "../machines/policy/objects.ts";
import { piecesOf } from "../machines/policy/pieces.ts";
import { isSameMessage } from "../machines/same-message.ts";
import { WriteBudget } from "../machines/write-budget.ts";
import {
  Annotations,
  Any,
  DataplaneReport,
  DataplaneReportAnswer,
  Operation,
  ProposeRequest_Mode,
  Resource,
  StoreObject,
  type PolicyService,
} from "../proto/gen/messages.ts";
import { RpcError, Status, type ServiceHandlers } from "../runtime/ports/rpc.ts";
import { spans } from "../runtime/telemetry/spans.ts";
import type { Commit, ObjectChange } from "../runtime/store/store.ts";
import type { Environment, Running } from "./environment.ts";
import { createNodeViews } from "./node-views.ts";
import { continueSpan, describeSpan } from "./tracing.ts";

/** Timeout for writing a report to the ledger, in milliseconds. */
const reportTimeoutMs = 10_000;
/** Maximum size of a report: about 5,000 endpoints. It fits into one log record. */
const reportBytesMax = 512 * 1_024;
/** A node that starts a thousand tasks reports 100 kB a few times; agents retry refused reports. */
const reportBudget = { bytesMax: 4 * reportBytesMax, bytesPerS: 64 * 1_024 };

interface PolicyActor extends Running {
  readonly handlers: ServiceHandlers<typeof PolicyService>;
}

/** `isCurrent`: whether this manager's replica has caught up with the log. */
export function createPolicy(env: Environment, isCurrent: () => boolean): PolicyActor {
  const { proposer, store } = env;
  const budget = new WriteBudget(reportBudget);
  /** The newest traced change of a resource: of a policy, or of another object that policies concern. */
  let traced = { version: 0, traceparent: "" };
  const tracing = store.watch(({ causes, changes, version }) => {
    const traceparent = causes.length === 0 ? "" : traceOfResources(changes, causes);
    if (traceparent !== "") traced = { version, traceparent };
  });
  const views = createNodeViews(env, {
    gauge: "muster_policy_followers",
    help: "Nodes for which this manager calculates network policy.",
    isCurrent,
    piecesOf,
    startSpan: (nodeId, sinceVersion) => {
      const span = traced.version > sinceVersion ? continueSpan(env, spans.policySend, traced.traceparent) : null;
      if (span !== null) describeSpan(span, spans.policySend, { "muster.node.id": nodeId });
      return span;
    },
    calculate: () => {
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
      return {
        follow: (nodeId, onDirty) => graph.follow(nodeId, onDirty),
        unfollow: (view) => graph.unfollow(view),
        stop: () => watching.unsubscribe(),
      };
    },
  });

  /** Written only when it differs: most events on a node are not news to the cluster. */
  async function keep(nodeId: string, report: DataplaneReport): Promise<void> {
    const before = store.get("resource", nodeId);
    const payload = Any.create({
      type_url: "type.googleapis.com/muster.v1.DataplaneReport",
      value: DataplaneReport.encode(report),
    });
    if (before !== undefined && isSameMessage(before.payload?.value, payload.value)) return;
    const bytes = payload.value.length;
    if (bytes > reportBytesMax) {
      const limit = `${bytes} bytes, limit ${reportBytesMax}`;
      throw new RpcError(
        Status.INVALID_ARGUMENT,
        `the report of node ${nodeId} on its dataplane is too large: ${limit}`,
      );
    }
    if (!budget.take(nodeId, bytes, env.clock.monotonic()))
      throw new RpcError(
        Status.RESOURCE_EXHAUSTED,
        `node ${nodeId} exceeded the rate limit of dataplane reports: try again later`,
      );
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

  return {
    handlers: {
      Follow: ({ version }, sink, call) => views.follow(version, sink, call),
      Report: async (report, call) => {
        const nodeId = views.callerOf(call);
        if (store.get("node", nodeId) === undefined) throw new RpcError(Status.NOT_FOUND, `node ${nodeId} not found`);
        await keep(nodeId, report);
        return DataplaneReportAnswer.create({});
      },
    },
    stop: () => {
      tracing.unsubscribe();
      views.stop();
    },
  };
}

/** The trace of the last traced change of a resource; empty: none is traced. */
function traceOfResources(changes: Commit["changes"], causes: Commit["causes"]): string {
  let at = 0;
  let found = "";
  for (const cause of causes) {
    const end = Math.min(changes.length, at + cause.changes);
    for (; at < end; at += 1)
      if (changes[at]?.table === "resource" && cause.traceparent !== "") found = cause.traceparent;
  }
  return found;
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
