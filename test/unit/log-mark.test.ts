// A manager's mark of what it has seen of the log: when it is written, and that an interrupted write leaves the previous one.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { createTroubles } from "../../actors/manager/troubles.ts";
import { timeMs } from "../../proto/time.ts";
import { MarkKeeper } from "../../runtime/store/log-mark.ts";
import { MarkFile } from "../../runtime/system/mark-file.ts";
import { testManager } from "../support/manager.ts";
import { memoryMark, type MemoryMark } from "../support/mark.ts";
import { service } from "./store-kit.ts";

function keeping(disk: MemoryMark) {
  const manager = testManager();
  const { clock, env, seed, store: replica } = manager;
  const troubles = createTroubles(env);
  const keeper = new MarkKeeper({ replica, disk, clock, telemetry: env.telemetry, troubles });
  const write = (id: string): void => seed("service", service(id, id));
  return { clock, keeper, replica, troubles, write };
}

test("K1: an answer waits until the mark is on the disk, and answers that come meanwhile share one write", async (t) => {
  let finish: () => void = () => {};
  const disk = memoryMark(null, () => new Promise((resolve) => (finish = resolve)));
  const { clock, keeper, replica, write } = keeping(disk);
  write("s1");
  const answered: string[] = [];
  void keeper.holds(1).then(() => answered.push("first"));
  await clock.run({ untilMs: clock.now() + 1 });
  write("s2");
  write("s3");
  for (const version of [2, 3]) void keeper.holds(version).then(() => answered.push(`of ${version}`));
  await clock.run({ untilMs: clock.now() + 5_000 });
  t.deepEqual(answered, [], "nothing is answered before");
  finish();
  await clock.run({ untilMs: clock.now() + 1 });
  t.deepEqual(answered, ["first"]);
  t.is(disk.stored()?.sequence, 1);
  finish();
  await clock.run({ untilMs: clock.now() + 1 });
  t.deepEqual(answered, ["first", "of 2", "of 3"]);
  t.deepEqual([disk.stored()?.sequence, disk.stored()?.checksum, disk.writes()], [3, replica.checksum, 2]);
  await keeper.holds(3);
  t.is(disk.writes(), 2, "it is already there");
});

test("K2: if nobody waits the mark follows within a second, however much is written", async (t) => {
  const disk = memoryMark(null);
  const { clock, keeper, write } = keeping(disk);
  for (let at = 1; at <= 50; at += 1) write(`s${at}`);
  await clock.run({ untilMs: clock.now() + 1_001 });
  t.deepEqual([disk.writes(), disk.stored()?.sequence], [1, 50]);
  await clock.run({ untilMs: clock.now() + 60_000 });
  t.is(disk.writes(), 1, "an idle cluster writes nothing");
  keeper.stop();
});

test("K3: a manager that rereads the log leaves the mark unchanged until it is past it", async (t) => {
  const before = testManager();
  for (let at = 1; at <= 5; at += 1) before.seed("service", service(`s${at}`, `s${at}`));
  const disk = memoryMark(before.store);
  const { clock, keeper, write } = keeping(disk);
  write("s1");
  void keeper.holds(1);
  await clock.run({ untilMs: clock.now() + 2_000 });
  t.deepEqual([disk.stored()?.sequence, disk.writes()], [5, 0]);
  keeper.accept();
  write("s2");
  await clock.run({ untilMs: clock.now() + 2_000 });
  t.is(disk.stored()?.sequence, 2);
  const acceptedMs = timeMs(keeper.lossAccepted);
  const storedMs = (): number => timeMs(disk.stored()?.lossAccepted ?? null);
  t.true(acceptedMs > 0);
  t.is(storedMs(), acceptedMs, "the mark records when the loss was accepted");
  keeper.stop();
  const later = keeping(disk);
  t.is(timeMs(later.keeper.lossAccepted), acceptedMs, "and keeps recording it");
  for (const id of ["s1", "s2", "s3"]) later.write(id);
  await later.clock.run({ untilMs: later.clock.now() + 2_000 });
  t.deepEqual([disk.stored()?.sequence, storedMs()], [3, acceptedMs]);
  later.keeper.stop();
});

test("a disk that rejects the mark delays no answer, and is reported until it accepts one again", async (t) => {
  let isFull = true;
  const disk = memoryMark(null, () => (isFull ? Promise.reject(new Error("EIO: i/o error")) : Promise.resolve()));
  const { clock, keeper, troubles, write } = keeping(disk);
  write("s1");
  await keeper.holds(1);
  t.regex(troubles.all()[0]?.sentence ?? "", /cannot be written \(Error: EIO/);
  isFull = false;
  write("s2");
  await keeper.holds(2);
  t.deepEqual(troubles.all(), []);
  await clock.run({ untilMs: clock.now() + 1 });
  keeper.stop();
});

test("M1: whichever write of a mark is interrupted, the previous one is read", async (t) => {
  const directory = mkdtempSync(join(tmpdir(), "muster-mark-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const path = join(directory, "mark");
  const text = (file: MarkFile): string | null => {
    const value = file.read();
    return value === null ? null : new TextDecoder().decode(value);
  };
  const bytes = (value: string): Uint8Array => new TextEncoder().encode(value);
  t.is(text(new MarkFile(path)), null);
  for (const [last, next] of [
    ["one", "second"],
    ["third", "fourth and longer"],
  ] as const) {
    const file = new MarkFile(path);
    await file.write(bytes(last));
    const before = readFileSync(path);
    await file.write(bytes(next));
    await file.close();
    const after = readFileSync(path);
    t.is(text(new MarkFile(path)), next);
    const changed = [...after.keys()].filter((at) => after[at] !== before[at]);
    // The disk has only the first bytes that the second write changed.
    for (let count = 0; count < changed.length; count += 1) {
      const torn = Buffer.from(before);
      for (const at of changed.slice(0, count)) torn[at] = after[at] as number;
      writeFileSync(path, torn);
      t.is(text(new MarkFile(path)), last, `after ${count} bytes`);
    }
    writeFileSync(path, after);
  }
  const file = new MarkFile(path);
  await t.throwsAsync(file.write(new Uint8Array(5_000)), { instanceOf: RangeError });
});
