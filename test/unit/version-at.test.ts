import test from "ava";
import fc from "fast-check";
import { findVersion } from "../../actors/history/version-at.ts";
import { Task, Timestamp, type FindVersionResponse } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { oneRecord } from "../../runtime/store/fitting.ts";
import { testManager } from "../support/manager.ts";
import { retainedOf } from "../support/retained.ts";

function stamp(ms: number): Timestamp {
  return Timestamp.create({ seconds: Math.floor(ms / 1_000), nanos: (ms % 1_000) * 1e6 });
}

/** A log with a record after each of these waits, in milliseconds. */
function written(waits: readonly number[]) {
  const manager = testManager();
  const times: number[] = [];
  for (const wait of waits) {
    manager.clock.advance(wait);
    times.push(manager.clock.now());
    manager.seed("task", Task.create({ id: "t1" }));
  }
  const retained = retainedOf(manager);
  const find = async (ms: number): Promise<FindVersionResponse | RpcError> => {
    let answer: FindVersionResponse | RpcError | null = null;
    void findVersion({ log: retained.log, clock: manager.clock }, stamp(ms)).then(
      (found) => (answer = found),
      (error: unknown) => (answer = error as RpcError),
    );
    await manager.clock.run({ until: () => answer !== null });
    if (answer === null) throw new Error("no answer");
    return answer;
  };
  return { times, retained, find };
}

test("a version is found by the time at which it was the last", async (t) => {
  const waits = fc.array(fc.nat(5), { maxLength: 40 });
  await fc.assert(
    fc.asyncProperty(waits, fc.nat(100), fc.nat(10), async (gaps, offset, purged) => {
      const { times, find, retained } = written(gaps);
      retained.first = Math.min(1 + purged, times.length + 1);
      const at = (times[0] ?? 0) - 2 + offset;
      const wanted = times.filter((time) => time <= at).length;
      const found = await find(at);
      if (wanted < retained.first && retained.first > 1)
        return found instanceof RpcError && found.code === Status.OUT_OF_RANGE;
      return !(found instanceof RpcError) && found.version === wanted;
    }),
    { numRuns: 60 },
  );
  t.pass();
});

test("an unresponsive log is reported as unavailable", async (t) => {
  const { find, retained } = written([1, 1, 1]);
  Object.assign(retained.log, { bounds: () => Promise.resolve(null) });
  t.like(await find(Date.now()), { code: Status.UNAVAILABLE });
  Object.assign(retained.log, { bounds: () => Promise.resolve({ first: 1, last: 3 }) });
  retained.isUp = false;
  t.like(await find(Date.now()), { code: Status.UNAVAILABLE });
});

test("each step requests one record: a log that sends ahead would send most of itself again and again", async (t) => {
  const { find, retained } = written(Array.from({ length: 40 }, () => 1));
  const { log } = retained;
  const ahead: (number | undefined)[] = [];
  Object.assign(retained, {
    log: {
      ...log,
      read: (...[from, reader, aheadBytes]: Parameters<typeof log.read>) => {
        ahead.push(aheadBytes);
        return log.read(from, reader);
      },
    },
  });
  t.false((await find(Date.now())) instanceof RpcError);
  t.true(ahead.length > 3, `${ahead.length} records`);
  t.deepEqual([...new Set(ahead)], [oneRecord]);
});
