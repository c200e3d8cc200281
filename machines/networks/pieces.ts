/** Splits updates for a stream: no piece above some hundred kilobytes, and the last one in sync. */
import { NetworksUpdate } from "../../proto/gen/messages.ts";

/** Objects have at most some hundred bytes each. */
const objectsMax = 500;

/** At least one piece, also for an empty update. Removals come last, as in an update. */
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
