/**
 * Invariants of cluster volumes, by what the storage itself has observed.
 *
 * S30: the storage never gets an invalid request: to attach a single-node volume to two nodes, to detach a volume from a node
 *      that has it mounted, to delete one that a node has, or to mount one that is not attached.
 * S31: a task runs only where its volumes are mounted.
 * L5: at rest the storage has exactly the cluster's volumes, attached exactly where their tasks are.
 */
import { VolumePublishStatus_State as PublishState } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Storage } from "../nodes/storage-model.ts";

export function checkStorage(storage: Storage): string | null {
  const [flaw] = storage.flaws;
  return flaw === undefined ? null : `S30: ${flaw}`;
}

/** Remaining work for the store's volumes; null if there is none. */
export function findUnpublished(store: Store): string | null {
  for (const volume of store.all("volume")) {
    const name = volume.spec?.annotations?.name ?? volume.id;
    if (volume.pendingDelete && volume.publishStatus.length === 0) return `volume ${name} is not removed yet`;
    if ((volume.volumeInfo?.volumeId ?? "") === "") return `volume ${name} is not created yet`;
    for (const { nodeId, state } of volume.publishStatus)
      if (state !== PublishState.PUBLISHED) return `volume ${name} is in state ${state} on ${nodeId}`;
  }
  return null;
}

/** L5; `nameOf`: the plugin's name for a node. */
export function findStrayVolumes(
  store: Store,
  storage: Storage,
  nameOf: (nodeId: string) => string | undefined,
): string | null {
  const names = new Set<string>();
  for (const volume of store.all("volume")) {
    const name = volume.spec?.annotations?.name ?? "";
    names.add(name);
    const stored = storage.byName(name);
    if (stored === undefined) return `L5: volume ${name} is not in the storage`;
    const wanted = volume.publishStatus.map(({ nodeId }) => nameOf(nodeId) ?? nodeId).sort();
    const attached = [...stored.attached].sort();
    if (wanted.join() !== attached.join())
      return `L5: volume ${name} is attached to ${attached.join() || "nobody"}, not to ${wanted.join() || "nobody"}`;
    for (const node of stored.mounted.keys())
      if (!attached.includes(node)) return `L5: volume ${name} is mounted on ${node} without being attached`;
  }
  for (const { name } of storage.volumes.values()) if (!names.has(name)) return `L5: the storage still has ${name}`;
  return null;
}
