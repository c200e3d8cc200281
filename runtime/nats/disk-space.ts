/**
 * Whether the disk under the log has enough space: a pure function of what the file system reports.
 *
 * F1: nothing is appended while the disk has less than `fullBytes` free. The rest is for leases, for a snapshot and for the
 *     purge that frees space, since a nats-server whose disk is completely full may never write again (2.9.10 stops answering,
 *     2.15 gives the stream up until it is restarted).
 * F2: the thresholds for both directions differ, so that a disk at the limit does not flap.
 */
import type { LogSpace } from "../ports/index.ts";

export interface DiskSpace {
  readonly kind: LogSpace;
  /** Without the reserve. */
  readonly freeBytes: number;
  /** Bytes that a program can write now. */
  readonly writableBytes: number;
  readonly limits: SpaceLimits;
}

export interface SpaceLimits {
  /** Below this, nothing is appended. */
  readonly fullBytes: number;
  /** Below this, old history is dropped early. */
  readonly scarceBytes: number;
}

const mebi = 1024 * 1024;
/** Fits a snapshot of some 20,000 tasks and the files that JetStream rewrites during a purge. */
const fullBytesMin = 16 * mebi;
/** More is useless: the log grows by at most a megabyte a second, for the few seconds by which a check may be late. */
const fullBytesMax = 128 * mebi;
/** Share of the disk, between these two. */
const fullShare = 0.01;
/** Share for a disk so small that the minimum is a large part of it. */
const fullShareMax = 1 / 8;
/** Space for several snapshots and for what is written meanwhile. */
const scarceFactor = 4;
/** F2 */
const recoveryFactor = 1.5;

export function spaceLimits(sizeBytes: number): SpaceLimits {
  const wanted = Math.min(fullBytesMax, Math.max(fullBytesMin, sizeBytes * fullShare));
  const fullBytes = Math.floor(Math.min(wanted, sizeBytes * fullShareMax));
  return { fullBytes, scarceBytes: fullBytes * scarceFactor };
}

/** F2; `before`: the result of the last check. */
export function spaceKind(freeBytes: number, { fullBytes, scarceBytes }: SpaceLimits, before: LogSpace): LogSpace {
  if (freeBytes < fullBytes * (before === "full" ? recoveryFactor : 1)) return "full";
  return freeBytes < scarceBytes * (before === "ample" ? 1 : recoveryFactor) ? "scarce" : "ample";
}

/** The reason for refused writes. */
export function fullSentence({ freeBytes, limits }: DiskSpace): string {
  return `the log's disk is full: ${megabytes(freeBytes)} MB are free, and writes stop below ${megabytes(limits.fullBytes)} MB; free up space`;
}

/** An early warning. */
export function nearlyFullSentence({ freeBytes, limits }: DiskSpace): string {
  return `the log's disk is nearly full: ${megabytes(freeBytes)} MB are free, and writes stop below ${megabytes(limits.fullBytes)} MB; old history is being dropped`;
}

function megabytes(bytes: number): number {
  return Math.max(0, Math.floor(bytes / mebi));
}
