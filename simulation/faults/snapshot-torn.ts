/**
 * A stored snapshot is torn: it ends in the middle, or cannot be read at all, as when its object store lost a chunk. One that
 * the log continues always remains whole: without that, the cluster's state would be gone.
 */
import { parseSnapshotName } from "../../runtime/store/snapshots.ts";
import type { Fault } from "./fault.ts";

export const snapshotTorn = {
  kind: "snapshot.torn",
  share: 0.3,
  meanMs: [2_000, 10_000],
  begin: ({ simulation: { nats, trace } }) => {
    const torn = new Map<string, Uint8Array>();
    const isWhole = (name: string): boolean => !nats.unreadable.has(name) && nats.blobs.get(name) !== torn.get(name);
    return {
      strike(random) {
        const usable = [...nats.blobs.keys()].filter(
          (name) => (parseSnapshotName(name) ?? 0) >= nats.first - 1 && isWhole(name),
        );
        if (usable.length < (nats.first === 1 ? 1 : 2)) return;
        const name = random.pick(usable);
        const data = nats.blobs.get(name) ?? new Uint8Array();
        trace.mark("snapshot.torn");
        if (random.chance(0.5)) nats.unreadable.add(name);
        else {
          const half = data.slice(0, 1 + random.below(data.length - 1));
          torn.set(name, half);
          nats.blobs.set(name, half);
        }
      },
    };
  },
} as const satisfies Fault;
