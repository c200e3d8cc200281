/**
 * The object store shows an earlier state for a while, as a server that lags behind does, and a manager restarts meanwhile: it
 * finds only snapshots that are older than the log retains, if it had such ones.
 */
import { parseSnapshotName } from "../../runtime/store/snapshots.ts";
import { crash, type Fault } from "./fault.ts";

const staleMsMax = 10_000;
/** Interval between two copies of the stored snapshots, in milliseconds. */
const copyMs = 2_000;

type Blobs = ReadonlyMap<string, Uint8Array>;

export const snapshotsStale = {
  kind: "snapshots.stale",
  share: 0.3,
  meanMs: [5_000, 20_000],
  begin(world) {
    const {
      later,
      managers,
      repeat,
      simulation: { nats, trace },
    } = world;
    const copies: Blobs[] = [new Map(nats.blobs)];
    repeat(copyMs, () => copies.push(new Map(nats.blobs)));
    const reachesLog = (blobs: Blobs): boolean =>
      nats.first === 1 || [...blobs.keys()].some((name) => (parseSnapshotName(name) ?? 0) >= nats.first - 1);
    const heal = (): void => void (nats.staleBlobs = null);
    return {
      strike(random) {
        const tooOld = copies.findLast((each) => !reachesLog(each));
        if (tooOld !== undefined) trace.mark("snapshots.too.old");
        nats.staleBlobs = tooOld ?? copies[0] ?? null;
        crash(world, random.pick(managers), random, false);
        later(random.between(500, staleMsMax), heal);
      },
      heal,
    };
  },
} as const satisfies Fault;
