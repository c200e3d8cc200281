/** Which version is meant by a version or a time, and what is answered for one that cannot be shown. */
import { isoOf } from "../../machines/orchestration/jobs/runs.ts";
import { timeMs } from "../../proto/time.ts";
import type { Timestamp } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";
import { findVersion, timeOf } from "./version-at.ts";
import { extentOf, type PastParts } from "./base.ts";

/** By how much a time may be ahead of this manager's clock and still mean now, in milliseconds. */
const clockSkewMsMax = 5_000;

export type Moment = { readonly version: number } | { readonly time: Timestamp };

export function unreadable(): RpcError {
  return new RpcError(Status.UNAVAILABLE, "the log does not answer: try again");
}

/** Throws OUT_OF_RANGE for a time that is still to come. */
export function demandPast({ clock }: Pick<PastParts, "clock">, time: Timestamp): void {
  if (timeMs(time) <= clock.now() + clockSkewMsMax) return;
  const [meant, now] = [isoOf(timeMs(time)), isoOf(clock.now())];
  throw new RpcError(Status.OUT_OF_RANGE, `${meant} is still to come: it is ${now}`);
}

/** Throws OUT_OF_RANGE for a moment that is still to come or of which nothing is kept. */
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
  // This replica may be a little behind.
  const extent = await extentOf(parts);
  if (extent === null) throw unreadable();
  if (moment.version > extent.last) {
    throw new RpcError(
      Status.OUT_OF_RANGE,
      `version ${moment.version} has not happened yet: the newest is ${extent.last}`,
    );
  }
  return moment.version;
}

/** What is answered for a version before the oldest that can be rebuilt. */
export async function notKept(parts: PastParts, version: number, oldest: number): Promise<RpcError> {
  // The record of the oldest state itself may be gone; the one after it is there.
  let time: Timestamp | null = null;
  for (const sequence of Number.isFinite(oldest) ? [oldest, oldest + 1] : []) {
    if (sequence > 0) time ??= await timeOf(parts.log, parts.clock, sequence).catch(() => null);
  }
  const since = time === null ? "" : `, of ${isoOf(timeMs(time))}`;
  const what = Number.isFinite(oldest) ? `the oldest is version ${oldest}${since}` : "no version of it is";
  return new RpcError(Status.OUT_OF_RANGE, `version ${version} is not kept any more: ${what}`);
}
