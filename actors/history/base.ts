/**
 * Starts the rebuilding of an earlier state: loads the newest earlier snapshot in parts, so that other work of this process
 * gets its turn.
 */
import type { Blobs, Clock, Log, Telemetry } from "../../runtime/ports/index.ts";
import { isOfLog } from "../../runtime/store/fitting.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { SnapshotError } from "../../runtime/store/snapshot.ts";
import { listSnapshots, snapshotName } from "../../runtime/store/snapshots.ts";
import { sleep, stepInTurn } from "../../runtime/store/wait.ts";

/** Timeout of reading the log's bounds, and delay between two attempts, in milliseconds. */
const boundsTimeoutMs = 2_000;
const retryMs = 250;
/** Attempts to find and load a snapshot before the waiting callers are refused. */
const attemptsMax = 8;

/** Where the history is stored, and what is needed to read it. */
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

/** The versions that can be rebuilt: where a rebuild can start, newest first, and the last written version. */
export interface Extent {
  readonly bases: readonly number[];
  /** First version of the log. */
  readonly first: number;
  readonly last: number;
}

/** Null when the log or the blobs do not answer. */
export async function extentOf({ log, blobs }: PastParts): Promise<Extent | null> {
  const bounds = await log.bounds(boundsTimeoutMs);
  if (bounds === null) return null;
  try {
    // The log must continue the snapshot. Without a snapshot, the log must start from an empty state.
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
 * Loads a replica at the version that `wanted` returns, or an earlier one. `wanted` is called with the extent once it is known,
 * and again on each attempt; it returns null when nobody wants the replica any more, and then so does this.
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
      if (extent.bases.some((each) => unusable.has(each))) return { kind: "unreadable" };
      return { kind: "compacted", oldest: extent.bases.at(-1) ?? Number.POSITIVE_INFINITY };
    }
    const replica = new Replica();
    if (sequence === 0) return { kind: "base", replica };
    try {
      const bytes = await blobs.get(snapshotName(sequence));
      // A newer snapshot has replaced it meanwhile; or it is listed, and cannot be read: an older one, with more records, will do.
      if (bytes === null) {
        unusable.add(sequence);
        continue;
      }
      if (!(await isOfLog(parts.log, clock, bytes, sequence, extent)))
        throw new SnapshotError("it contains records that the log has lost");
      await loadSnapshot(replica, bytes, clock);
      return { kind: "base", replica };
    } catch (error) {
      if (!(error instanceof SnapshotError)) continue;
      telemetry.log.error({ sequence, error: error.message }, "cannot use a snapshot for reading the history");
      unusable.add(sequence);
    }
  }
  return { kind: "unreadable" };
}

/** Rejects with SnapshotError. */
async function loadSnapshot(replica: Replica, bytes: Uint8Array, clock: Clock): Promise<void> {
  const steps = replica.loadingSteps(bytes);
  while ((await stepInTurn(clock, () => steps.next())).done !== true);
}
