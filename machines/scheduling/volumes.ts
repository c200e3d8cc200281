/**
 * Cluster volumes (CSI) as the scheduler sees them: who uses which, and which ones a task would get on a node (manager
 * semantics §4.6). SwarmKit lets a node pass that can give any one of the volumes a task mounts; here it must give all.
 *
 * C1: a volume is given only while it is ACTIVE, exists at its plugin, and its access mode allows one more such use.
 * C2: all mounts of a task are given together, or none; a use of one mount counts for the next one.
 * C3: a volume is published on the nodes that use it according to the store, and given up on the others. Nothing but the
 *     store's state decides that, so a new leader goes on where the last one ended.
 */
import { isDriverSpec } from "../driver/driver-spec.ts";
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

export interface VolumeWant {
  /** A volume's name, or `group:` and a group's. */
  readonly source: string;
  readonly target: string;
  readonly isReadOnly: boolean;
}

interface Use {
  readonly nodeId: string;
  readonly isReadOnly: boolean;
}

/** Ways to share volumes out among a task's mounts that are tried before a node counts as unfit; a task rarely has five. */
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

/** Of specs of drivers' tasks, which have to be decoded for it; tasks of one service mostly share theirs. */
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
      // Whoever runs it says so.
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
  /** By volume; several of one task when it mounts the volume more than once. */
  readonly #uses = new Map<string, Map<string, readonly Use[]>>();
  /** Volumes that have changed, or what uses them, since it was last looked where they are to be published. */
  readonly #touched = new Set<string>();
  #revision = 0;

  /** Rises whenever a volume, or what uses it, changes. */
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

  /** Where the volume is to be published must be looked at (again). */
  touch(id: string): void {
    this.#touched.add(id);
    this.#revision += 1;
  }

  remove(id: string): void {
    if (this.#volumes.delete(id)) this.#revision += 1;
  }

  /** Counts what the task was given. */
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

  /** What a task would get on the node now; null when the node cannot give it all (C2). Takes nothing. */
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
        if (!this.#hasRoom(volume, node, chosen)) continue;
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

  /** The touched volumes whose publish status is not what their users ask for, with the one that is. A plan is no use yet. */
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

  /** Named ones have one candidate; of a group the least used comes first, then the one with the smaller id. */
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

  /** A plugin may say how many volumes it can have on a node at most; those that are there already need no room. */
  #hasRoom(volume: Volume, node: Node, chosen: readonly { readonly volume: Volume }[]): boolean {
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

function driverOf(volume: Volume): string {
  return volume.spec?.driver?.name ?? "";
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

/** C1: `uses` are those there are already. */
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

/** The node has the volume's plugin, and lies in one of the topologies that the volume can be reached from (none: all). */
function isReachable(volume: Volume, node: Node): boolean {
  const info = csiInfo(node, driverOf(volume));
  if (info === undefined) return false;
  const accessible = volume.volumeInfo?.accessibleTopology ?? [];
  return accessible.length === 0 || accessible.some((topology) => liesIn(info.accessibleTopology, topology));
}

function liesIn(own: Topology | null, { segments }: Topology): boolean {
  return Object.keys(segments).every((domain) => own?.segments[domain] === segments[domain]);
}

/** What follows where the last user has gone: a node that was never told of the volume has nothing to give up. */
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
 * C3. The volume's publish status as its users want it: a node that uses it gets it published, one that no longer does gives it
 * up. What is being given up is left alone until it is gone; only then can it be published there again.
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
