/**
 * How much slower this machine is than the one on which the tests' deadlines were chosen, from 1 to 10. `npm test` measures it at
 * its start, and hands it to all test processes in MUSTER_TEST_SLOWNESS; the deadlines of waits are longer by this factor. A test that needs a retry
 * instead is wrong, and fails the run (test/ava.ts).
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";

export const slownessVariable = "MUSTER_TEST_SLOWNESS";
const slownessMax = 10;

/** The least that was measured on two cores of an AMD EPYC, in November 2026 (milliseconds). */
export const reference = { computeMs: 22, startsMs: 26 } as const;

/** Short pauses of a shared machine should not count: the best of these many runs does. */
const rounds = 5;

/** JavaScript and hashing, as in simulations and TLS. */
function compute(): void {
  const data = new Uint8Array(256 * 1024);
  for (let round = 0; round < 12; round += 1) {
    for (let at = 0; at < data.length; at += 1) data[at] = (at * 31 + round) & 0xff;
    createHash("sha256")
      .update(data)
      .update(JSON.stringify(Array.from({ length: 10_000 }, (_, at) => `${at}`)))
      .digest();
  }
}

/** Processes that exit at once: tests of clusters start hundreds. */
function startProcesses(): void {
  for (let count = 0; count < 16; count += 1) spawnSync("/bin/true");
}

function bestMs(work: () => void): number {
  const durations = Array.from({ length: rounds }, () => {
    const startedAt = performance.now();
    work();
    return performance.now() - startedAt;
  });
  return Math.min(...durations);
}

/** The greater of both ratios, within its bounds, to a tenth. */
export function slownessOf(measured: { readonly computeMs: number; readonly startsMs: number }): number {
  const ratio = Math.max(measured.computeMs / reference.computeMs, measured.startsMs / reference.startsMs);
  return Math.round(Math.min(Math.max(1, ratio), slownessMax) * 10) / 10;
}

/** Takes about half a second. */
export function measureSlowness(): number {
  return slownessOf({ computeMs: bestMs(compute), startsMs: bestMs(startProcesses) });
}

/** A deadline of a wait, on this machine; unchanged in a test file that is run without `npm test`. */
export function patient(ms: number): number {
  return ms * Number(process.env[slownessVariable] ?? 1);
}
