/** Explains why a cluster volume waits, and which volumes a task waits for. */
import {
  Reason,
  TaskState,
  VolumePublishStatus_State as PublishState,
  type Node,
  type Task,
  type Volume,
} from "../../../proto/gen/messages.ts";
import { initialTransition, type AnyStateMachine } from "xstate";
import { lazyNodeNames } from "../../node-names.ts";
import { isWanted, observedState } from "../../task.ts";
import { isVolumeReady, volumeWantsOf } from "../../scheduling/volumes.ts";
import { waitOf, type StatePath } from "../../wait-meta.ts";
import { publicationMachine } from "../publication.machine.ts";
import { volumeMachine } from "../volume.machine.ts";
import { blockers, driverOf, publicationOf, publicationStage, volumeName, volumeStage } from "./stages.ts";

/** A chart's state, and why its last attempt failed (empty if none has). */
interface Standing<Machine extends AnyStateMachine> {
  readonly state: StatePath<Machine>;
  readonly reason: string;
}

type VolumeStanding = Standing<typeof volumeMachine>;
type PublicationStanding = Standing<typeof publicationMachine>;

export interface CsiView {
  volumes(): Iterable<Volume>;
  volume(id: string): Volume | undefined;
  nodeName(id: string): string;
  /** Null: no chart manages it. */
  life(volumeId: string): VolumeStanding | null;
  publication(volumeId: string, nodeId: string): PublicationStanding | null;
}

function explainLife(volume: Volume, { state, reason }: VolumeStanding): Partial<Reason> {
  const facts = { "the storage plugin": pluginOf(volume), "its id": volume.volumeInfo?.volumeId ?? "" };
  return { ...waitOf(volumeMachine, state, facts), tried: reason === "" ? [] : [reason] };
}

function explainPublication(
  volume: Volume,
  nodeId: string,
  standing: PublicationStanding | null,
  view: CsiView,
): Partial<Reason> {
  const nameOf = (id: string): string => `node ${view.nodeName(id)}`;
  const node = nameOf(nodeId);
  const status = publicationOf(volume, nodeId);
  const isComing = status?.state === PublishState.PENDING_PUBLISH;
  const words = standing?.reason || status?.message || "";
  const wait = waitOf(publicationMachine, standing?.state ?? "recording", {
    "another node": blockers(volume, nodeId).map(nameOf).join(", "),
    "the node": node,
    "the storage plugin": pluginOf(volume),
    "attach or detach it": isComing ? `attach it to ${node}` : `detach it from ${node}`,
  });
  return { ...wait, tried: words === "" ? [] : [words] };
}

function pluginOf(volume: Volume): string {
  return `storage plugin ${driverOf(volume)}`;
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
    life(volumeId) {
      const stage = volumeStage(store.volume(volumeId), false);
      return standingOf(initialTransition(volumeMachine, { volumeId, stage })[0]);
    },
    publication(volumeId, nodeId) {
      const stage = publicationStage(store.volume(volumeId), nodeId, store.node(nodeId) !== undefined);
      return standingOf(initialTransition(publicationMachine, { volumeId, nodeId, stage })[0]);
    },
  };
}

function standingOf<State extends string>({ value: state }: { readonly value: State }) {
  return state === "gone" ? null : { state, reason: "" };
}
