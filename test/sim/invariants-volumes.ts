/**
 * What must hold of cluster volumes, as the storage itself has seen it.
 *
 * S30: nobody asks the storage for what may not be: a volume for one node attached to two, one detached from a node that
 *      still has it mounted, one deleted while a node has it, one mounted that is not attached.
 * S31: a task runs only where its volumes are mounted.
 * L5: at rest the storage has exactly the volumes of the cluster, attached exactly where their tasks are.
 */
import { VolumePublishStatus_State as PublishState } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Storage } from "../support/storage.ts";

export function checkStorage(storage: Storage): string | null {
  const [flaw] = storage.flaws;
  return flaw === undefined ? null : `S30: ${flaw}`;
}

/** What is still to be done for the store's volumes; null when nothing is. */
export function findUnpublished(store: Store): string | null {
  for (const volume of store.all("volume")) {
    const name = volume.spec?.annotations?.name ?? volume.id;
    if (volume.pendingDelete && volume.publishStatus.length === 0) return `volume ${name} is not removed yet`;
    if ((volume.volumeInfo?.volumeId ?? "") === "") return `volume ${name} is not made yet`;
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
      if (!attached.includes(node)) return `L5: volume ${name} is mounted on ${node}, which does not have it`;
  }
  for (const { name } of storage.volumes.values()) if (!names.has(name)) return `L5: the storage still has ${name}`;
  return null;
}
