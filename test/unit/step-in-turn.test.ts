// Long work in steps: others get as much of the event loop as it takes.
import test from "ava";
import { Receipt } from "../../proto/gen/messages.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { stepInTurn } from "../../runtime/store/wait.ts";
import { decodingSteps, encodeSnapshot, snapshotParts } from "../../runtime/store/snapshot.ts";
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

test("a step of a snapshot hashes at most 500 receipts, when it is written and when it is read", (t) => {
  const receipts = Array.from({ length: 1_800 }, (_, at) => Receipt.create({ proposalId: `p${at}`, version: at + 1 }));
  const capture = { ...replicaOf(new Writer()).capture(), receipts };
  const perStep = (steps: Generator<unknown, unknown>): readonly number[] => {
    const { encode } = Receipt;
    let encoded = 0;
    Receipt.encode = (receipt) => {
      encoded += 1;
      return encode(receipt);
    };
    try {
      const counts: number[] = [];
      for (let isDone = false; !isDone; encoded = 0) {
        isDone = steps.next().done === true;
        counts.push(encoded);
      }
      return counts.filter((count) => count > 0);
    } finally {
      Receipt.encode = encode;
    }
  };
  t.deepEqual(perStep(snapshotParts(capture)), [500, 500, 500, 300]);
  t.deepEqual(perStep(decodingSteps(encodeSnapshot(capture))), [500, 500, 500, 300]);
});
