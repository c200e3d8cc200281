/**
 * Memory of a whole rehearsal. In two simulated hours its log keeps every record, about one a second for the probe, since it is cut
 * only after some thousand; nothing else may grow much.
 */
import test from "ava";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { rehearse } from "../../simulation/rehearsal/run.ts";
import { clusterOf, scenarioOf, serviceOf } from "../support/rehearsal-plans.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const minute = 60_000;
const mebibyte = 2 ** 20;
/** Three runs grew by 3.6 to 9.0 MiB; with a shared buffer kept alive by each record, one grew by 47 MiB. */
const grownMax = 24;

/** Bytes that are in use after garbage was collected: objects, and buffers outside of the heap, which go one collection later. */
function used(): number {
  collect();
  collect();
  const { arrayBuffers, heapUsed } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

test("a rehearsal needs hardly more memory after two hours than after 40 minutes", async (t) => {
  t.timeout(300_000);
  const checks = [40, 80, 119].map((at) => at * minute);
  const bytes: number[] = [];
  const cluster = clusterOf(3, [serviceOf("web", 6)], { meanUpMs: 30 * minute, meanDownMs: minute });
  const outcome = await rehearse(cluster, scenarioOf(120 * minute, []), 1, {
    onProgress: (ranMs) => {
      if (ranMs >= (checks[bytes.length] ?? Number.POSITIVE_INFINITY)) bytes.push(used());
    },
  });
  t.is(outcome.violation, null);
  const [early = 0, , late = 0] = bytes;
  t.is(bytes.length, checks.length);
  const grown = (late - early) / mebibyte;
  t.log(`${(early / mebibyte).toFixed(1)} MiB, then ${grown.toFixed(1)} MiB more for 4,740 seconds`);
  t.true(grown < grownMax, `it grew by ${grown.toFixed(1)} MiB`);
});
