// Backups that a manager takes by itself: when, how many are kept, what is reported when one fails, and the folder that has them.
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generateIdentity, identityToRecipient } from "age-encryption";
import test from "ava";
import { startBackupSchedule } from "../../actors/backup/schedule.ts";
import { backupParts } from "../../actors/backup/parts.ts";
import { createTroubles } from "../../actors/manager/troubles.ts";
import { scheduledBackupsOf } from "../../cli/serve/backup-flags.ts";
import type { BackupPart } from "../../proto/gen/messages.ts";
import { BackupFolder } from "../../runtime/backup/folder.ts";
import { openBackup } from "../../runtime/backup/format.ts";
import type { BackupStore, KeptBackup } from "../../runtime/ports/backup-store.ts";
import { backupWorld } from "../support/backups.ts";
import { inOrder } from "../support/recordings.ts";

const hourMs = 3_600_000;

class MemoryStore implements BackupStore {
  kept: KeptBackup[] = [];
  failure: string | null = null;
  readonly taken: number[] = [];

  list(): Promise<readonly KeptBackup[]> {
    return Promise.resolve(this.kept.toSorted((a, b) => b.atMs - a.atMs));
  }

  async write(_: string, atMs: number, parts: AsyncIterable<unknown>): Promise<number> {
    this.taken.push(atMs);
    let count = 0;
    for await (const __ of parts) count += 1;
    if (this.failure !== null) throw new Error(this.failure);
    this.kept.push({ name: `b${atMs}`, atMs });
    return count;
  }

  remove(name: string): Promise<void> {
    this.kept = this.kept.filter((each) => each.name !== name);
    return Promise.resolve();
  }
}

async function world(store = new MemoryStore()) {
  const { manager, sources } = await backupWorld();
  const { clock, env } = manager;
  const troubles = createTroubles(env);
  const start = () =>
    startBackupSchedule(env, {
      backups: store,
      place: "/backups",
      everyMs: hourMs,
      keep: 2,
      history: false,
      troubles,
      parts: (request) => backupParts(sources, request),
    });
  const begun = clock.now();
  const run = async (ms: number): Promise<void> => void (await clock.run({ untilMs: clock.now() + ms }));
  return { store, troubles, start, begun, run, clock };
}

test("BS1, BS2: a manager backs up at once, then at each interval, and keeps the newest", async (t) => {
  const { begun, run, start, store, troubles } = await world();
  const schedule = start();
  await run(3 * hourMs + 60_000);
  t.deepEqual(
    store.taken.map((atMs) => Math.round((atMs - begun) / hourMs)),
    [0, 1, 2, 3],
  );
  t.deepEqual(
    store.kept.map(({ atMs }) => Math.round((atMs - begun) / hourMs)),
    [2, 3],
  );
  t.deepEqual(troubles.all(), []);
  // A restart neither skips nor repeats one.
  schedule.stop();
  await run(hourMs / 2);
  const again = start();
  await run(hourMs);
  t.is(store.taken.length, 5);
  again.stop();
});

test("BS3: a failure is reported and retried, keeps what there is, and is over with the next success", async (t) => {
  const { run, start, store, troubles } = await world();
  const schedule = start();
  await run(hourMs + 1_000);
  store.failure = "the disk is full: 0.1 MiB are free";
  const before = store.kept.length;
  await run(hourMs + 5 * 60_000);
  t.is(store.kept.length, before);
  t.regex(
    troubles
      .all()
      .map(({ blocking, sentence }) => `${blocking} ${sentence}`)
      .join(),
    /^false the last backup to \/backups failed \(the disk is full: 0\.1 MiB are free\): it is tried again every few/,
  );
  store.failure = null;
  await run(11 * 60_000);
  t.deepEqual(troubles.all(), []);
  t.is(store.kept.length, 2);
  schedule.stop();
});

test("a folder has one file for each backup, lists those of its cluster alone, and none that is not whole", async (t) => {
  const path = mkdtempSync(join(tmpdir(), "muster-backup-folder-"));
  t.teardown(() => rmSync(path, { recursive: true }));
  const identity = await generateIdentity();
  const folder = new BackupFolder(join(path, "new"), {
    kind: "recipients",
    recipients: [await identityToRecipient(identity)],
  });
  t.deepEqual(await folder.list("cluster1"), []);
  const { take } = await backupWorld();
  const parts = await take();
  for (const hour of [8, 9]) await folder.write("cluster1", Date.UTC(2026, 10, 26, hour, 30, 5, 400), inOrder(parts));
  const names = ["muster-cluster1-20261126T093005Z.backup", "muster-cluster1-20261126T083005Z.backup"];
  // Files of others, and one of a manager that was killed.
  writeFileSync(join(path, "new", "notes.txt"), "");
  writeFileSync(join(path, "new", "muster-cluster2-20261126T093005Z.backup"), "");
  writeFileSync(join(path, "new", "muster-cluster1-20261126T093105Z.backup.next"), "half");
  const listed = await folder.list("cluster1");
  t.deepEqual(
    listed.map(({ name }) => name),
    names,
  );
  t.is(listed[0]?.atMs, Date.UTC(2026, 10, 26, 9, 30, 5));
  const file = await readFile(join(path, "new", names[0] as string));
  t.is((await openBackup(inOrder([file]), { passphrase: null, identities: [identity] })).head.clusterId, "cluster1");
  async function* failing(): AsyncGenerator<BackupPart> {
    yield* parts;
    throw new Error("the log does not answer");
  }
  await t.throwsAsync(folder.write("cluster1", 0, failing()), { message: "the log does not answer" });
  await folder.remove(names[1] as string);
  t.deepEqual(readdirSync(join(path, "new")).toSorted(), [
    names[0],
    "muster-cluster2-20261126T093005Z.backup",
    "notes.txt",
  ]);
});

test("flags of the schedule have ranges, and nothing is backed up unencrypted", async (t) => {
  const recipient = ["age1dtcpzysv65jtqj304utrnxeyhp5306caaa2ng77fuw9dzyntnvnsxj67sf"];
  t.is(await scheduledBackupsOf({}), null);
  t.like(await scheduledBackupsOf({ "backup-dir": "/b", "backup-recipient": recipient }), {
    dir: "/b",
    everyMs: 24 * hourMs,
    keep: 7,
    history: false,
  });
  const refused = (values: object, message: RegExp) =>
    t.throwsAsync(scheduledBackupsOf({ "backup-dir": "/b", "backup-recipient": recipient, ...values }), { message });
  await refused({ "backup-every": "10s" }, /^invalid argument "10s" for "--backup-every" flag: expected 1m to 480h$/);
  await refused({ "backup-every": "500h" }, /expected 1m to 480h$/);
  await refused({ "backup-keep": "0" }, /^invalid argument "0" for "--backup-keep" flag: expected 1 to 10000$/);
  await refused({ "backup-recipient": undefined }, /^set either --backup-passphrase-file or --backup-recipient: /);
  await t.throwsAsync(scheduledBackupsOf({ "backup-keep": "3" }), { message: "--backup-keep requires --backup-dir" });
});
