// Watches that resume from a real NATS server's log and object store.
import test from "ava";
import { findVersion } from "../../actors/history/version-at.ts";
import { createWatch } from "../../actors/watch/watch.ts";
import {
  Task,
  Timestamp,
  Version,
  WatchMessage,
  WatchRequest,
  WatchRequest_WatchEntry,
} from "../../proto/gen/messages.ts";
import { Host } from "../../runtime/host.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { natsServer, until } from "../fixtures/nats-server.ts";
import { call, collectedStream, testManager } from "../support/manager.ts";

test("a watch resumes from the log and the object store, and learns what is no longer retained", async (t) => {
  const { connect } = await natsServer(t);
  const { log, blobs } = await connect();
  const manager = testManager();
  const { store, records, env, seed } = manager;
  const clock = new SystemClock();
  const host = new Host({
    clock,
    telemetry: env.telemetry,
    onCrash: (_, error) => {
      throw error;
    },
  });
  const watch = createWatch({ ...env, clock, host }, { log, blobs }, { recentBytesMax: 0 });
  t.teardown(() => watch.stop());
  const open = (index: number) => {
    const stream = collectedStream<WatchMessage>();
    const request = WatchRequest.create({
      entries: [WatchRequest_WatchEntry.create({ kind: "task", action: 7 as never })],
      resumeFrom: Version.create({ index }),
      includeOldObject: true,
    });
    watch.handlers.Watch(request, stream, call());
    return stream;
  };
  const live = open(0);
  const write = async (count: number): Promise<void> => {
    for (let at = 0; at < count; at += 1) {
      manager.clock.advance(1_000);
      const from = store.version;
      // Creates the log first, as a ledger does.
      seed("task", Task.create({ id: `t${from % 7}`, slot: from, serviceId: "s" }));
      t.is((await log.append(records[from] as Uint8Array, from)).kind, "appended");
    }
  };
  await write(300);
  await blobs.put(snapshotName(store.version), store.snapshot());
  await write(300);
  const bytes = (messages: readonly WatchMessage[]) =>
    messages.map((message) => Buffer.from(WatchMessage.encode(message)).toString("base64"));
  const all = bytes(live.messages);
  for (const from of [0, 1, 299, 300, 301, 599, 600]) {
    const resumed = open(from);
    await until(`everything after ${from}`, () => resumed.messages.length >= 601 - from);
    t.deepEqual(bytes(resumed.messages), [all[0] as string, ...all.slice(from + 1)], `from ${from}`);
    t.is(resumed.ended, undefined);
  }
  const at = Math.floor(manager.clock.now() / 1_000) - 99;
  t.is((await findVersion({ log, clock }, Timestamp.create({ seconds: at }))).version, 501);

  await log.purgeBefore(301);
  const old = open(200);
  await until("a refusal", () => old.ended !== undefined);
  t.is(old.ended?.code, Status.OUT_OF_RANGE);
  t.regex(old.ended?.message ?? "", /\(oldest: 300\)/);
  const kept = open(300);
  await until("everything after 300", () => kept.messages.length === 301);
  const future = open(601);
  await until("a refusal", () => future.ended !== undefined);
  t.regex(future.ended?.message ?? "", /^versions are out of order/);
  const early = { seconds: at - 400 };
  await t.throwsAsync(findVersion({ log, clock }, Timestamp.create(early)), {
    message: /oldest: version 301/,
  });
});
