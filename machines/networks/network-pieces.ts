/** Updates in pieces that a stream can carry: none above some hundred kilobytes, the last one in sync. */
import { NetworksUpdate } from "../../proto/gen/messages.ts";

/** Some hundred bytes each at most. */
const objectsMax = 500;

/** At least one; that of an empty update is it. Removals come last, as an update has them. */
export function networkPiecesOf(update: NetworksUpdate): NetworksUpdate[] {
  const { networks, nodes, services, tasks } = update;
  const pieces: Partial<NetworksUpdate>[] = [];
  for (const [name, list] of Object.entries({ networks, nodes, services, tasks }))
    for (let at = 0; at < list.length; at += objectsMax) pieces.push({ [name]: list.slice(at, at + objectsMax) });
  const { removedNetworks, removedNodes, removedServices, removedTasks, version } = update;
  pieces.push({ removedNetworks, removedNodes, removedServices, removedTasks });
  return pieces.map((fields, at) =>
    NetworksUpdate.create({
      ...fields,
      version,
      fresh: update.fresh && at === 0,
      inSync: update.inSync && at === pieces.length - 1,
    }),
  );
}
