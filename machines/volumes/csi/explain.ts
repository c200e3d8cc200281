/** Explains why a cluster volume waits, and which volumes a task waits for. */
import {
  Reason,
  TaskState,
  VolumePublishStatus_State as PublishState,
  type Node,
  type Task,
  type Volume,
} from "../../../proto/gen/messages.ts";
import { lazyNodeNames } from "../../node-names.ts";
import { isWanted, observedState } from "../../task.ts";
import { isVolumeReady, volumeWantsOf } from "../../scheduling/volumes.ts";
import {
  blockers,
  driverOf,
  publicationOf,
  publicationStage,
  volumeName,
  volumeStage,
  type PublicationStage,
  type VolumeStage,
} from "./stages.ts";

/** A chart's state, and why its last attempt failed (empty if none has). */
export interface Standing {
  readonly state: string;
  readonly reason: string;
}

export interface CsiView {
  volumes(): Iterable<Volume>;
  volume(id: string): Volume | undefined;
  nodeName(id: string): string;
  /** Null: no chart manages it. */
  life(volumeId: string): Standing | null;
  publication(volumeId: string, nodeId: string): Standing | null;
}

const logWait = { waitingFor: "the log, to record the plugin's answer", wokenBy: "the ledger's answer" };

function explainLife(volume: Volume, { state, reason }: Standing): Partial<Reason> {
  const plugin = `storage plugin ${driverOf(volume)}`;
  switch (state) {
    case "creating":
      return { waitingFor: `${plugin}, to create it`, wokenBy: "the plugin's answer" };
    case "deleting":
      return { waitingFor: `${plugin}, to delete it`, wokenBy: "the plugin's answer" };
    case "inUse":
      return {
        waitingFor: "the tasks and nodes that use it: it is removed after the last of them",
        wokenBy: "the end of these tasks, and their nodes' reports that they have unmounted it",
      };
    case "created":
      return { waitingFor: `nothing: it exists at ${plugin} as ${volume.volumeInfo?.volumeId ?? ""}` };
    case "resting":
      return {
        waitingFor: `the next call to ${plugin}`,
        wokenBy: "the end of the retry delay, a change of the volume, or the plugin's return",
        tried: [reason],
      };
    default:
      return logWait;
  }
}

function explainPublication(volume: Volume, nodeId: string, standing: Standing | null, view: CsiView): Partial<Reason> {
  const node = `node ${view.nodeName(nodeId)}`;
  const plugin = `storage plugin ${driverOf(volume)}`;
  const status = publicationOf(volume, nodeId);
  const isComing = status?.state === PublishState.PENDING_PUBLISH;
  const words = standing?.reason || status?.message || "";
  const tried = words === "" ? [] : [words];
  switch (standing?.state) {
    case "publishing":
      return { waitingFor: `${plugin}, to attach it to ${node}`, wokenBy: "the plugin's answer", tried };
    case "unpublishing":
      return { waitingFor: `${plugin}, to detach it from ${node}`, wokenBy: "the plugin's answer", tried };
    case "blocked":
      return {
        waitingFor: `${blockers(volume, nodeId)
          .map((id) => `node ${view.nodeName(id)}`)
          .join(", ")}, to unmount it: only one node can use it at a time`,
        wokenBy: "that node's report, or its removal from the cluster",
      };
    case "leaving":
      return {
        waitingFor: `${node}, to unmount it`,
        wokenBy: "the node's report, or its removal from the cluster",
      };
    case "resting":
      return {
        waitingFor: `the next call to ${plugin}, to ${isComing ? "attach it to" : "detach it from"} ${node}`,
        wokenBy: "the end of the retry delay, a change of the volume, or the plugin's return",
        tried,
      };
    default:
      return logWait;
  }
}

export function explainVolume(volume: Volume, view: CsiView): readonly Reason[] {
  const since = volume.meta?.updatedAt ?? null;
  const life = view.life(volume.id);
  const reasons = life === null ? [] : [Reason.create({ since, ...explainLife(volume, life) })];
  for (const { nodeId, state } of volume.publishStatus) {
    if (state === PublishState.PUBLISHED) continue;
    reasons.push(
      Reason.create({ since, ...explainPublication(volume, nodeId, view.publication(volume.id, nodeId), view) }),
    );
  }
  return reasons;
}

/** Empty if the task waits for no volume. */
export function explainTaskVolumes(task: Task, view: CsiView): readonly Reason[] {
  const state = observedState(task);
  if (!isWanted(task) || state > TaskState.PREPARING) return [];
  if (state <= TaskState.PENDING) return volumeWantsOf(task).flatMap(({ source }) => explainWant(source, view));
  const reasons: Reason[] = [];
  for (const { id } of task.volumes) {
    const volume = view.volume(id);
    if (volume === undefined) continue;
    const status = publicationOf(volume, task.nodeId);
    if (status?.state === PublishState.PUBLISHED) continue;
    const why = explainPublication(volume, task.nodeId, view.publication(id, task.nodeId), view);
    reasons.push(named(volume, Reason.create({ since: volume.meta?.updatedAt ?? null, ...why })));
  }
  return reasons;
}

function explainWant(source: string, view: CsiView): readonly Reason[] {
  const candidates = [...view.volumes()].filter((volume) =>
    source.startsWith("group:") ? volume.spec?.group === source.slice("group:".length) : volumeName(volume) === source,
  );
  if (candidates.length === 0) {
    const what = source.startsWith("group:")
      ? `a cluster volume of group ${source.slice(6)}`
      : `cluster volume ${source}`;
    return [Reason.create({ waitingFor: `${what}, which does not exist`, wokenBy: "its creation" })];
  }
  // If a volume is ready, the scheduler explains why no node can use it.
  if (candidates.some(isVolumeReady)) return [];
  return candidates.flatMap((volume) => {
    if (volume.pendingDelete)
      return [
        named(
          volume,
          Reason.create({ waitingFor: "nothing: it is being removed", wokenBy: "a new volume with that name" }),
        ),
      ];
    if ((volume.volumeInfo?.volumeId ?? "") === "")
      return explainVolume(volume, view).map((reason) => named(volume, reason));
    return [
      named(volume, Reason.create({ waitingFor: "its availability to be active", wokenBy: "muster volume update" })),
    ];
  });
}

function named(volume: Volume, reason: Reason): Reason {
  return Reason.patch(reason, { waitingFor: `cluster volume ${volumeName(volume)}: ${reason.waitingFor}` });
}

/** A view for past moments, which have no charts: the store has the states, but of failed attempts only what it records. */
export function storedCsiView(
  store: Pick<CsiView, "volumes" | "volume"> & { node(id: string): Node | undefined; nodes(): Iterable<Node> },
): CsiView {
  return {
    volumes: () => store.volumes(),
    volume: (id) => store.volume(id),
    nodeName: lazyNodeNames(() => store.nodes()),
    life(id) {
      const volume = store.volume(id);
      const state = lifeStates[volumeStage(volume, false)];
      return state === null ? null : { state, reason: "" };
    },
    publication(id, nodeId) {
      const state = publicationStates[publicationStage(store.volume(id), nodeId, store.node(nodeId) !== undefined)];
      return state === null ? null : { state, reason: "" };
    },
  };
}

const lifeStates: Readonly<Record<VolumeStage, string | null>> = {
  new: "creating",
  asked: "creating",
  created: "created",
  "unwanted-used": "inUse",
  "unwanted-new": "removing",
  "unwanted-asked": "deleting",
  "unwanted-created": "deleting",
  gone: null,
};

const publicationStates: Readonly<Record<PublicationStage, string | null>> = {
  blocked: "blocked",
  wanted: "publishing",
  published: "published",
  leaving: "leaving",
  abandoned: "abandoning",
  left: "unpublishing",
  gone: null,
};
