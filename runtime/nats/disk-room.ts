/**
 * Whether there is room on the disk under the log: pure, from what the file system says.
 *
 * F1: nothing is appended while the disk has less than `fullBytes` free: what is left is for leases, for a snapshot and for
 *     the purge that makes room again, since a nats-server whose disk is really full may never write again (2.9.10 stops
 *     answering, 2.15 gives the stream up until it is restarted).
 * F2: on and off are apart, so that a disk at the limit does not flap.
 */

export type RoomKind = "ample" | "scarce" | "full";

export interface DiskRoom {
  readonly kind: RoomKind;
  /** Without the reserve. */
  readonly freeBytes: number;
  /** What a program can write now. */
  readonly writableBytes: number;
  readonly limits: RoomLimits;
}

export interface RoomLimits {
  /** Below this nothing is appended. */
  readonly fullBytes: number;
  /** Below this old history is dropped before its time. */
  readonly scarceBytes: number;
}

const mebi = 1024 * 1024;
/** A snapshot of some 20,000 tasks, and what JetStream writes anew when it purges, fit in. */
const fullBytesMin = 16 * mebi;
/** More is of no use to a log that grows by a megabyte a second at most for the seconds that a look may be late. */
const fullBytesMax = 128 * mebi;
/** Of the disk, between these two. */
const fullShare = 0.01;
/** On a disk so small that the least is much of it. */
const fullShareMax = 1 / 8;
/** Room for several snapshots and for what is written meanwhile. */
const scarceFactor = 4;
/** F2 */
const recoveryFactor = 1.5;

export function roomLimits(sizeBytes: number): RoomLimits {
  const wanted = Math.min(fullBytesMax, Math.max(fullBytesMin, sizeBytes * fullShare));
  const fullBytes = Math.floor(Math.min(wanted, sizeBytes * fullShareMax));
  return { fullBytes, scarceBytes: fullBytes * scarceFactor };
}

/** F2; `before`: what it was at the last look. */
export function roomKind(freeBytes: number, { fullBytes, scarceBytes }: RoomLimits, before: RoomKind): RoomKind {
  if (freeBytes < fullBytes * (before === "full" ? recoveryFactor : 1)) return "full";
  return freeBytes < scarceBytes * (before === "ample" ? 1 : recoveryFactor) ? "scarce" : "ample";
}

/** For whoever is refused. */
export function fullSentence({ freeBytes, limits }: DiskRoom): string {
  return `the log's disk is full: ${megabytes(freeBytes)} MB are free, and below ${megabytes(limits.fullBytes)} MB nothing is written: make room`;
}

/** For whoever looks before it is too late. */
export function nearlyFullSentence({ freeBytes, limits }: DiskRoom): string {
  return `the log's disk is nearly full: ${megabytes(freeBytes)} MB are free, and below ${megabytes(limits.fullBytes)} MB nothing is written; old history is being dropped`;
}

function megabytes(bytes: number): number {
  return Math.max(0, Math.floor(bytes / mebi));
}
