/** Copies a running cluster: its objects, and what its log says about the past. */
import {
  HistoryRequest,
  OperatorService,
  WatchRequest_WatchEntry,
  type Node,
  type Service,
  type Task,
  type WatchActionKind,
  type WatchMessage,
} from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import type { RpcError } from "../../runtime/ports/rpc.ts";
import type { ClusterPlan } from "../../simulation/rehearsal/plan.ts";
import { listNetworks, listNodes, listServices, listTasks, type ManagerClient } from "../manager-client.ts";
import { everyAction, watch } from "../watching.ts";
import { millisecondsOf } from "../values.ts";
import { isRunOf } from "../../machines/orchestration/jobs/runs.ts";
import { scheduleSettings } from "../../machines/orchestration/jobs/labels.ts";
import { humanDuration } from "../../lib/human-duration.ts";
import { copiedCluster } from "./copied-cluster.ts";
import { ObservedTimes } from "./observed-times.ts";
import { plural } from "./report-texts.ts";

interface FromCluster {
  readonly plan: ClusterPlan;
  /** How the copy differs from the cluster, and how much of its past it knows; one line each. */
  readonly remarks: readonly string[];
}

/** Maximum silence of a manager that replays its log; after it the copy has only the past until then. */
const silenceMsMax = 20_000;

/** `nowMs`: since the epoch. Reads only. */
export async function planFromCluster(client: ManagerClient, nowMs: number): Promise<FromCluster> {
  const [nodes, services, networks, tasks] = await Promise.all([
    listNodes(client),
    listServices(client),
    listNetworks(client),
    listTasks(client),
  ]);
  const schedules = services.filter(({ spec }) => scheduleSettings(spec) !== null);
  // Most runs have been removed since, so only their ids say what they belong to.
  const observed = new ObservedTimes(
    (serviceId) => schedules.find(({ id }) => isRunOf(serviceId, id))?.id ?? serviceId,
  );
  const oldest = await oldestVersion(client, nodes);
  const isWhole = oldest === null || (await replay(client, oldest.version, { nodes, tasks }, observed));
  for (const task of tasks) observed.addRunning(task, nowMs);
  observed.close(nowMs);
  const { plan, remarks } = copiedCluster({ nodes, services, networks, tasks }, observed);
  const copied = new Set(plan.services.map(({ spec }) => spec.annotations?.name));
  const unseen = services.filter(
    ({ id, spec }) => copied.has(spec?.annotations?.name) && observed.startsOf(id) === 0,
  ).length;
  const began = oldest?.timeMs ?? firstOf([...nodes, ...services]);
  const past = began === null ? "an unknown time" : humanDuration(nowMs - began).toLowerCase();
  return {
    plan,
    remarks: [
      `times and failures are those of the log's last ${past}`,
      ...(unseen > 0
        ? [
            `${plural(unseen, "service")} without a task started in this time: their times are those of the others, or defaults`,
          ]
        : []),
      ...(isWhole ? [] : ["the manager was silent while it replayed the log: later times and failures are missing"]),
      ...remarks,
    ],
  };
}

interface Oldest {
  readonly version: number;
  /** Since the epoch; null: not known. */
  readonly timeMs: number | null;
}

/** When the oldest of these was created, in milliseconds since the epoch: about the beginning of a log that is still whole. */
function firstOf(objects: readonly (Node | Service)[]): number | null {
  const times = objects.flatMap(({ meta }) => (meta?.createdAt == null ? [] : [timeMs(meta.createdAt)]));
  return times.length === 0 ? null : Math.min(...times);
}

/** The oldest version that the log retains, at least 1; null: there is no node whose history would say it. */
async function oldestVersion(client: ManagerClient, [node]: readonly Node[]): Promise<Oldest | null> {
  if (node === undefined) return null;
  const request = HistoryRequest.create({ kind: "node", subject: node.id, last: 1 });
  const ended = Promise.withResolvers<RpcError | null>();
  let oldest: Oldest | null = null;
  client.channel.serverStream(OperatorService.methods.History, request, {
    onMessage({ oldestVersion: version, oldestTime }) {
      // 0: the log is whole. Its first version has the cluster, which no watch asks for here.
      oldest ??= { version: Math.max(1, version), timeMs: version === 0 ? null : millisecondsOf(oldestTime) };
    },
    onEnd: ended.resolve,
  });
  const error = await ended.promise;
  if (error !== null) throw error;
  return oldest;
}

/** Feeds every version since `from`, up to those of `present`. False: the manager fell silent before them. */
async function replay(
  client: ManagerClient,
  from: number,
  present: { readonly nodes: readonly Node[]; readonly tasks: readonly Task[] },
  observed: ObservedTimes,
): Promise<boolean> {
  const versions = [...present.nodes, ...present.tasks].map(({ meta }) => meta?.version?.index ?? 0);
  const last = versions.reduce((most, version) => Math.max(most, version), 0);
  if (last <= from) return true;
  const caughtUp = Promise.withResolvers<boolean>();
  const silence = setTimeout(() => caughtUp.resolve(false), silenceMsMax);
  const onMessage = ({ events, version }: WatchMessage): void => {
    for (const { object } of events) {
      if (object?.task != null) observed.addTask(object.task);
      if (object?.node != null) observed.addNode(object.node);
    }
    silence.refresh();
    if ((version?.index ?? 0) >= last) caughtUp.resolve(true);
  };
  const entries = ["task", "node"].map((kind) =>
    WatchRequest_WatchEntry.create({ kind, action: everyAction as WatchActionKind }),
  );
  const watching = watch(client, entries, onMessage, { from });
  try {
    return await Promise.race([caughtUp.promise, watching.broken]);
  } finally {
    clearTimeout(silence);
    watching.cancel();
  }
}
