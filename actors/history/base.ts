/**
 * Where the rebuilding of an earlier state begins: the newest snapshot from before it, loaded a part at a time so that
 * this process's other work has its turn.
 */
import type { Blobs, Clock, Log, Telemetry } from "../../runtime/ports.ts";
import { isOfLog } from "../../runtime/store/fitting.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { SnapshotError } from "../../runtime/store/snapshot.ts";
import { listSnapshots, snapshotName } from "../../runtime/store/snapshots.ts";
import { sleep } from "../../runtime/store/wait.ts";

/** How long the log may take to tell its bounds, in milliseconds; and between two tries. */
const boundsTimeoutMs = 2_000;
const retryMs = 250;
/** Tries to find and load a snapshot before those that wait for it are turned away. */
const attemptsMax = 8;

/** Where the past is kept, and what it takes to read it. */
export interface PastParts {
  readonly log: Log;
  readonly blobs: Blobs;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
}

export type Base =
  | { readonly kind: "base"; readonly replica: Replica }
  /** The oldest version that can be rebuilt. */
  | { readonly kind: "compacted"; readonly oldest: number }
  | { readonly kind: "unreadable" };

/** What can be rebuilt: the versions at which that can begin, newest first, and the last that is written. */
export interface Extent {
  readonly bases: readonly number[];
  /** Of the log. */
  readonly first: number;
  readonly last: number;
}

/** Null when log or blobs do not answer. */
export async function extentOf({ log, blobs }: PastParts): Promise<Extent | null> {
  const bounds = await log.bounds(boundsTimeoutMs);
  if (bounds === null) return null;
  try {
    // A snapshot must be continued by the log. Without any, the log itself begins with nothing.
    const bases = (await listSnapshots(blobs)).filter(
      (sequence) => sequence >= bounds.first - 1 && sequence <= bounds.last,
    );
    if (bounds.first <= 1) bases.push(0);
    return { bases, ...bounds };
  } catch {
    return null;
  }
}

/**
 * A replica at the version that `wanted` gives, or at an earlier one. `wanted` is asked once it is known what there is,
 * and again with each try; null: nobody wants any any more, which is what is answered then.
 */
export async function loadBase(parts: PastParts, wanted: (extent: Extent) => number | null): Promise<Base | null> {
  const { blobs, clock, telemetry } = parts;
  const unusable = new Set<number>();
  for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
    if (attempt > 0) await sleep(clock, retryMs);
    const extent = await extentOf(parts);
    if (extent === null) continue;
    const position = wanted(extent);
    if (position === null) return null;
    const sequence = extent.bases.find((each) => each <= position && !unusable.has(each));
    if (sequence === undefined) {
      if (unusable.size > 0) return { kind: "unreadable" };
      return { kind: "compacted", oldest: extent.bases.at(-1) ?? Number.POSITIVE_INFINITY };
    }
    const replica = new Replica();
    if (sequence === 0) return { kind: "base", replica };
    try {
      const bytes = await blobs.get(snapshotName(sequence));
      // A newer one has taken its place meanwhile.
      if (bytes === null) continue;
      if (!(await isOfLog(parts.log, clock, bytes, sequence, extent)))
        throw new SnapshotError("it is of records that the log has lost");
      await loadSnapshot(replica, bytes, clock);
      return { kind: "base", replica };
    } catch (error) {
      if (!(error instanceof SnapshotError)) continue;
      telemetry.log.error({ sequence, error: error.message }, "snapshot is not usable for looking back");
      unusable.add(sequence);
    }
  }
  return { kind: "unreadable" };
}

/** Rejects with SnapshotError. */
async function loadSnapshot(replica: Replica, bytes: Uint8Array, clock: Clock): Promise<void> {
  const steps = replica.loadingSteps(bytes);
  while (steps.next().done !== true) await sleep(clock, 0);
}
