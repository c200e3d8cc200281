// Long work in steps: others get as much of the event loop as it takes.
import test from "ava";
import { SimClock } from "../../runtime/sim/clock.ts";
import { stepInTurn } from "../../runtime/store/wait.ts";
import { snapshotParts } from "../../runtime/store/snapshot.ts";
import { put, replicaOf, task, Writer } from "./store-kit.ts";

test("after a step, its owner waits for as long as the step took", async (t) => {
  const clock = new SimClock();
  let spentMs = 0;
  const measured = {
    setTimeout: clock.setTimeout.bind(clock),
    monotonic: () => clock.monotonic() + spentMs,
  } as unknown as SimClock;
  const ended: number[] = [];
  for (const ms of [7, 0, 30]) {
    const begun = clock.now();
    const step = stepInTurn(measured, () => {
      spentMs += ms;
      return ms;
    }).then((result) => {
      t.is(result, ms);
      ended.push(clock.now() - begun);
    });
    await clock.run({ untilMs: begun + 100 });
    await step;
  }
  t.deepEqual(ended, [7, 0, 30]);
});

test("a part of a snapshot has at most a hundred objects", (t) => {
  const writer = new Writer();
  writer.write(Array.from({ length: 350 }, (_, at) => put({ task: task(`t${at}`, { slot: at }) })));
  const steps = snapshotParts(replicaOf(writer).capture());
  let parts = 0;
  while (steps.next().done !== true) parts += 1;
  t.is(parts, 4);
});
