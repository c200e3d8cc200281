/**
 * Cluster volumes (CSI) in the scheduler: which tasks use them, and which ones a task would get on a node (manager
 * semantics §4.6). SwarmKit accepts a node that has any one of a task's volumes; here it must have all.
 *
 * C1: a volume is assigned only while it is ACTIVE, exists at its plugin, and its access mode allows the additional use.
 * C2: a task gets volumes for all its mounts, or for none; the use by one mount counts for the next.
 * C3: a volume is published on the nodes that use it according to the store, and unpublished on the others. Only the store
 *     decides this, so a new leader continues where the last one stopped.
 */
import { isDriverSpec } from "../driver/spec.ts";
import {
  DriverSpec,
  ExecSpec,
  Mount_Type,
  VolumeAccessMode_Scope,
  VolumeAccessMode_Sharing,
  Volume,
  VolumeAttachment,
  VolumePublishStatus,
  VolumePublishStatus_State,
  VolumeSpec_VolumeAvailability,
  type Mount,
  type Node,
  type Task,
  type TaskSpec,
  type Topology,
} from "../../proto/gen/messages.ts";
import { driverOf } from "../volumes/csi/stages.ts";

export interface VolumeWant {
  /** A volume's name, or `group:` and the name of a group. */
  readonly source: string;
  readonly target: string;
  readonly isReadOnly: boolean;
}

interface Use {
  readonly nodeId: string;
  readonly isReadOnly: boolean;
}

/** Volume choices tried for a task's mounts before the node counts as unfit; a task rarely has five mounts. */
const choicesTriedMax = 1_000;
const groupPrefix = "group:";
const noUses: readonly Use[] = [];
const noMounts: readonly Mount[] = [];
const noWants: readonly VolumeWant[] = [];

/** The cluster volumes that a task mounts, in the order of its mounts. */
export function volumeWantsOf(task: Task): readonly VolumeWant[] {
  const mounts = mountsOf(task);
  return mounts.some(isCluster)
    ? mounts.filter(isCluster).map(({ source, target, readonly }) => ({ source, target, isReadOnly: readonly }))
    : noWants;
}

/** Cache for specs of driver tasks, which must be decoded; tasks of a service mostly share their spec. */
const processMounts = new WeakMap<TaskSpec, readonly Mount[]>();

function mountsOf({ spec }: Task): readonly Mount[] {
  if (spec?.container != null) return spec.container.mounts;
  const generic = spec?.generic ?? null;
  if (spec === null || generic?.payload == null) return noMounts;
  const isDriven = isDriverSpec(generic.payload.type_url);
  if (!isDriven && generic.kind !== "exec") return noMounts;
  let mounts = processMounts.get(spec);
  if (mounts === undefined) {
    try {
      ({ mounts } = (isDriven ? DriverSpec : ExecSpec).decode(generic.payload.value));
    } catch {
      // The driver reports it when the task runs.
      mounts = noMounts;
    }
    processMounts.set(spec, mounts);
  }
  return mounts;
}

function isCluster({ type }: Mount): boolean {
  return type === Mount_Type.CLUSTER;
}

export class VolumeSet {
  readonly #volumes = new Map<string, Volume>();
  /** By volume, then by task; a task that mounts the volume more than once has several uses. */
  readonly #uses = new Map<string, Map<string, readonly Use[]>>();
  /** Volumes that changed, or whose users changed, since their publish status was last computed. */
  readonly #touched = new Set<string>();
  #revision = 0;

  /** Increases whenever a volume or its users change. */
  get revision(): number {
    return this.#revision;
  }

  get hasTouched(): boolean {
    return this.#touched.size > 0;
  }

  put(volume: Volume): void {
    this.#volumes.set(volume.id, volume);
    this.touch(volume.id);
  }

  /** Marks the volume's publish status for recomputation. */
  touch(id: string): void {
    this.#touched.add(id);
    this.#revision += 1;
  }

  remove(id: string): void {
    if (this.#volumes.delete(id)) this.#revision += 1;
  }

  /** Records the task's uses. */
  use(task: Task, nodeId: string, given: readonly VolumeAttachment[]): void {
    for (const { id, source, target } of given) {
      let byTask = this.#uses.get(id);
      if (byTask === undefined) this.#uses.set(id, (byTask = new Map<string, readonly Use[]>()));
      const mount = mountsOf(task).find((each) => each.source === source && each.target === target);
      const use = { nodeId, isReadOnly: mount?.readonly ?? false };
      byTask.set(task.id, [...(byTask.get(task.id) ?? []), use]);
      this.touch(id);
    }
  }

  release(taskId: string, given: readonly VolumeAttachment[]): void {
    for (const { id } of given) {
      const byTask = this.#uses.get(id);
      if (byTask?.delete(taskId) !== true) continue;
      if (byTask.size === 0) this.#uses.delete(id);
      this.touch(id);
    }
  }

  /** The volumes that a task would get on the node now; null if a mount cannot be satisfied (C2). Records no use. */
  choose(wants: readonly VolumeWant[], node: Node): readonly VolumeAttachment[] | null {
    const chosen: { readonly volume: Volume; readonly use: Use }[] = [];
    let triesLeft = choicesTriedMax;
    const fill = (at: number): boolean => {
      const want = wants[at];
      if (want === undefined) return true;
      const use = { nodeId: node.id, isReadOnly: want.isReadOnly };
      for (const volume of this.#candidates(want.source)) {
        if (triesLeft === 0) return false;
        triesLeft -= 1;
        const uses = [...this.#usesOf(volume.id), ...chosen.flatMap((one) => (one.volume === volume ? [one.use] : []))];
        if (!canUse(volume, use, uses) || !isReachable(volume, node)) continue;
        if (!this.#hasCapacity(volume, node, chosen)) continue;
        chosen.push({ volume, use });
        if (fill(at + 1)) return true;
        chosen.pop();
      }
      return false;
    };
    if (!fill(0)) return null;
    return wants.map(({ source, target }, at) =>
      VolumeAttachment.create({ id: chosen[at]?.volume.id ?? "", source, target }),
    );
  }

  /** Touched volumes with an outdated publish status, with the new one. Planned tasks do not count as users. */
  takeRepublished(isPlanned: (taskId: string) => boolean): readonly Volume[] {
    const republished: Volume[] = [];
    for (const id of this.#touched) {
      const volume = this.#volumes.get(id);
      if (volume === undefined) continue;
      const users = new Set<string>();
      for (const [taskId, uses] of this.#uses.get(id) ?? [])
        if (!isPlanned(taskId)) for (const { nodeId } of uses) users.add(nodeId);
      const publishStatus = publishing(volume, users);
      if (publishStatus !== null) republished.push(Volume.patch(volume, { publishStatus }));
    }
    this.#touched.clear();
    return republished;
  }

  /** A name has one candidate; a group's are ordered by number of users, then by id. */
  #candidates(source: string): readonly Volume[] {
    const isGroup = source.startsWith(groupPrefix);
    const name = isGroup ? source.slice(groupPrefix.length) : source;
    const found: Volume[] = [];
    for (const volume of this.#volumes.values()) {
      const own = isGroup ? volume.spec?.group : volume.spec?.annotations?.name;
      if (own === name && name !== "") found.push(volume);
    }
    const users = (volume: Volume): number => this.#uses.get(volume.id)?.size ?? 0;
    return found.sort((a, b) => users(a) - users(b) || (a.id < b.id ? -1 : 1));
  }

  #usesOf(id: string): readonly Use[] {
    const byTask = this.#uses.get(id);
    return byTask === undefined ? noUses : [...byTask.values()].flat();
  }

  /** A plugin may limit its volumes per node; volumes that are already on the node count only once. */
  #hasCapacity(volume: Volume, node: Node, chosen: readonly { readonly volume: Volume }[]): boolean {
    const driver = volume.spec?.driver?.name ?? "";
    const max = csiInfo(node, driver)?.maxVolumesPerNode ?? 0;
    if (max <= 0) return true;
    const there = new Set([
      volume.id,
      ...chosen.filter((one) => driverOf(one.volume) === driver).map((one) => one.volume.id),
    ]);
    for (const [id, byTask] of this.#uses) {
      const used = this.#volumes.get(id);
      if (used === undefined || driverOf(used) !== driver) continue;
      for (const uses of byTask.values()) if (uses.some(({ nodeId }) => nodeId === node.id)) there.add(id);
    }
    return there.size <= max;
  }
}

function csiInfo(node: Node, driver: string) {
  return node.description?.csiInfo.find(({ pluginName }) => pluginName === driver);
}

/** C1 */
export function isVolumeReady(volume: Volume): boolean {
  return (
    volume.spec?.availability === VolumeSpec_VolumeAvailability.ACTIVE &&
    !volume.pendingDelete &&
    (volume.volumeInfo?.volumeId ?? "") !== ""
  );
}

/** C1. `uses`: the existing uses. */
function canUse(volume: Volume, use: Use, uses: readonly Use[]): boolean {
  const mode = volume.spec?.accessMode ?? null;
  if (mode === null || !isVolumeReady(volume)) return false;
  if (mode.scope === VolumeAccessMode_Scope.SINGLE_NODE && uses.some(({ nodeId }) => nodeId !== use.nodeId))
    return false;
  switch (mode.sharing) {
    case VolumeAccessMode_Sharing.NONE:
      return uses.length === 0;
    case VolumeAccessMode_Sharing.READ_ONLY:
      return use.isReadOnly;
    case VolumeAccessMode_Sharing.ONE_WRITER:
      return use.isReadOnly || uses.every(({ isReadOnly }) => isReadOnly);
    case VolumeAccessMode_Sharing.ALL:
      return true;
  }
}

/** The node has the volume's plugin and is in one of the volume's accessible topologies (none listed: all). */
function isReachable(volume: Volume, node: Node): boolean {
  const info = csiInfo(node, driverOf(volume));
  if (info === undefined) return false;
  const accessible = volume.volumeInfo?.accessibleTopology ?? [];
  return accessible.length === 0 || accessible.some((topology) => liesIn(info.accessibleTopology, topology));
}

function liesIn(own: Topology | null, { segments }: Topology): boolean {
  return Object.keys(segments).every((domain) => own?.segments[domain] === segments[domain]);
}

/** The state after the last user has gone: a node that never got the volume has nothing to unmount. */
function leftState(state: VolumePublishStatus_State): VolumePublishStatus_State | null {
  switch (state) {
    case VolumePublishStatus_State.PENDING_PUBLISH:
      return VolumePublishStatus_State.PENDING_UNPUBLISH;
    case VolumePublishStatus_State.PUBLISHED:
      return VolumePublishStatus_State.PENDING_NODE_UNPUBLISH;
    default:
      return null;
  }
}

/**
 * C3. The publish status that the volume's users need, null if unchanged: nodes that use it are added, nodes that no longer
 * do start to unpublish it. An entry being unpublished stays until it is removed; only then can the node be added again.
 */
function publishing(volume: Volume, users: ReadonlySet<string>): readonly VolumePublishStatus[] | null {
  const listed = new Set(volume.publishStatus.map(({ nodeId }) => nodeId));
  const isLeft = ({ nodeId, state }: VolumePublishStatus): boolean => leftState(state) !== null && !users.has(nodeId);
  const missing = [...users].filter((nodeId) => !listed.has(nodeId)).sort();
  if (missing.length === 0 && !volume.publishStatus.some(isLeft)) return null;
  return [
    ...volume.publishStatus.map((status) =>
      isLeft(status) ? VolumePublishStatus.patch(status, { state: leftState(status.state) ?? status.state }) : status,
    ),
    ...missing.map((nodeId) =>
      VolumePublishStatus.create({ nodeId, state: VolumePublishStatus_State.PENDING_PUBLISH }),
    ),
  ];
}
