/**
 * The machine of the nats-server loses power, and comes back without acknowledged data: it lost the newest records of the log
 * that were not synced, or it has an older disk, with older leases and snapshots, as from a backup.
 */
import type { NatsDiskCopy } from "../../runtime/sim/nats-server.ts";
import type { Fault } from "./fault.ts";

const downMsMax = 5_000;
/** Interval between two syncs, in milliseconds: some records are lost, and most are not. */
const syncMs = 2_000;
/** Number of syncs after which the backup is replaced. */
const syncsPerBackup = 3;

export const natsOlder = {
  kind: "nats.older",
  share: 0.07,
  meanMs: [6_000, 40_000],
  begin({ later, mayLoseTail, repeat, simulation: { nats } }) {
    let backup: NatsDiskCopy | null = null;
    let syncs = 0;
    repeat(syncMs, () => {
      nats.sync();
      if ((syncs += 1) % syncsPerBackup === 1 && mayLoseTail()) backup = nats.copyDisk();
    });
    return {
      strike(random) {
        if (!nats.isUp) return;
        if (backup !== null && random.chance(0.5)) nats.crashWithOlderDisk(backup);
        else nats.crash({ loseTail: mayLoseTail() });
        later(random.between(50, downMsMax), () => nats.start());
      },
    };
  },
} as const satisfies Fault;
