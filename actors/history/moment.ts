/** Resolves a version or time to a version, and builds the errors for versions that cannot be shown. */
import { isoOf } from "../../machines/orchestration/jobs/runs.ts";
import { timeMs } from "../../proto/time.ts";
import type { Timestamp } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";
import { findVersion, timeOf, unreadable } from "./version-at.ts";
import { extentOf, type PastParts } from "./base.ts";

/** How far a time may be ahead of this manager's clock and still mean now, in milliseconds. */
const aheadMsMax = 5_000;

export type Moment = { readonly version: number } | { readonly time: Timestamp };

/** Throws OUT_OF_RANGE for a time in the future. */
export function demandPast({ clock }: Pick<PastParts, "clock">, time: Timestamp): void {
  if (timeMs(time) <= clock.now() + aheadMsMax) return;
  const [meant, now] = [isoOf(timeMs(time)), isoOf(clock.now())];
  throw new RpcError(Status.OUT_OF_RANGE, `${meant} is in the future: it is ${now}`);
}

/** Throws OUT_OF_RANGE for a moment in the future or before the retained history. */
export async function versionOf(
  parts: PastParts & { readonly store: Pick<Store, "version"> },
  moment: Moment,
): Promise<number> {
  const { store } = parts;
  if ("time" in moment) {
    demandPast(parts, moment.time);
    return (await findVersion(parts, moment.time)).version;
  }
  if (moment.version <= store.version) return moment.version;
  // This replica may lag a little behind.
  const extent = await extentOf(parts);
  if (extent === null) throw unreadable();
  if (moment.version > extent.last) {
    throw new RpcError(Status.OUT_OF_RANGE, `version ${moment.version} does not exist yet (newest: ${extent.last})`);
  }
  return moment.version;
}

/** The error for a version before the oldest that can be rebuilt. */
export async function notKept(parts: PastParts, version: number, oldest: number): Promise<RpcError> {
  // The record of the oldest state itself may be purged; the next one is there.
  let time: Timestamp | null = null;
  for (const sequence of Number.isFinite(oldest) ? [oldest, oldest + 1] : []) {
    if (sequence > 0) time ??= await timeOf(parts.log, parts.clock, sequence).catch(() => null);
  }
  const since = time === null ? "" : `, of ${isoOf(timeMs(time))}`;
  const what = Number.isFinite(oldest) ? `oldest: version ${oldest}${since}` : "which is empty";
  return new RpcError(Status.OUT_OF_RANGE, `version ${version} is older than the retained history (${what})`);
}
