// Backups as files: what a manager puts into them, and what whoever opens one finds; whole, truncated, changed, foreign, future and
// locked ones.
import { randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generateIdentity, identityToRecipient } from "age-encryption";
import test, { type ExecutionContext } from "ava";
import { openingOf, wrappingOf } from "../../cli/backup/keys.ts";
import { writeWhole } from "../../cli/write-whole.ts";
import {
  Annotations,
  BackupHead,
  BackupPart,
  Config,
  ConfigSpec,
  Node,
  Secret,
  SecretSpec,
  Task,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { PartFileError } from "../../runtime/part-file.ts";
import { openBackup, type BackupTaker } from "../../runtime/backup/format.ts";
import { encrypted, type Opening } from "../../runtime/backup/envelope.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { backupBytes, backupWorld, sealedAgain, type BackupWorld } from "../support/backups.ts";
import { createSigner, fileOf, headPart, inOrder, sealedParts } from "../support/recordings.ts";

const identity = await generateIdentity();
const recipient = await identityToRecipient(identity);
const wrapping = { kind: "recipients", recipients: [recipient] } as const;
const opening: Opening = { passphrase: null, identities: [identity] };

const task = (at: number, state: TaskState): Task =>
  Task.create({ id: `t${at}`, serviceId: "s", slot: at, status: TaskStatus.create({ state }) });

/** A cluster with tasks, a secret and configs that fill several parts. */
async function filled(): Promise<BackupWorld> {
  const world = await backupWorld();
  const { manager } = world;
  for (let at = 0; at < 30; at += 1) manager.seed("task", task(at, TaskState.RUNNING));
  const named = (name: string) => Annotations.create({ name });
  manager.seed(
    "secret",
    Secret.create({ id: "s1", spec: SecretSpec.create({ annotations: named("s"), data: Buffer.from("hidden") }) }),
  );
  for (let at = 0; at < 5; at += 1) {
    const spec = ConfigSpec.create({ annotations: named(`c${at}`), data: randomBytes(600_000) });
    manager.seed("config", Config.create({ id: `c${at}`, spec }));
  }
  manager.seed("node", Node.create({ id: "n1" }));
  return world;
}

const open = (file: Uint8Array, by = opening, taker?: BackupTaker) => openBackup(inOrder([file]), by, taker);

async function refusal(t: ExecutionContext, file: Uint8Array, by = opening): Promise<PartFileError> {
  return (await t.throwsAsync(open(file, by), { instanceOf: PartFileError })) as PartFileError;
}

test("a backup has the whole state at its version, who made it, and nothing in the clear", async (t) => {
  const { manager, take } = await filled();
  const parts = await take();
  t.true(parts.filter(({ state }) => state.length > 0).length >= 4, "large objects are in parts of their own");
  for (const { state } of parts) t.true(state.length < 2_000_000);
  const file = await backupBytes(parts, wrapping);
  for (const text of ["hidden", "cluster1", "MUSTBAK"]) t.false(file.includes(text));
  const { head, missing, records, replica, seal } = await open(file);
  t.like(head, { clusterId: "cluster1", managerId: "m1", first: manager.store.version, last: manager.store.version });
  t.like(seal, { kind: "signed", managerId: "m1", clusterId: "cluster1" });
  t.deepEqual([missing, records], [[], 0]);
  t.is(replica.stateHash(), manager.store.stateHash());
});

test("a backup with history has the oldest state and every record since", async (t) => {
  const { manager, retained, take } = await filled();
  const base = manager.store.version;
  retained.stored.set(snapshotName(base), manager.store.snapshot());
  const states = new Map<number, string>();
  for (let at = 0; at < 20; at += 1) {
    manager.seed("task", task(at, TaskState.COMPLETE));
    states.set(manager.store.version, manager.store.stateHash());
  }
  // Something else published a message.
  retained.records.push(Buffer.from("foreign"));
  manager.store.apply(manager.store.version + 1, Buffer.from("foreign"));
  manager.seed("task", task(21, TaskState.FAILED));
  retained.first = base + 1;
  const file = await backupBytes(await take(true), wrapping);
  const given: number[] = [];
  const taker: BackupTaker = {
    onState: (_, version) => Promise.resolve(void given.push(version)),
    onRecord: (version) => Promise.resolve(void given.push(version)),
  };
  const { head, records, replica } = await open(file, opening, taker);
  t.deepEqual([head.first, head.last, records], [base, base + 22, 22]);
  t.deepEqual(
    given,
    Array.from({ length: 23 }, (_, at) => base + at),
  );
  t.is(replica.stateHash(), manager.store.stateHash());
  t.is(states.size, 20);
});

test("BP1: a backup has what the log had when it was requested, or says what it may lack", async (t) => {
  const { manager, retained, take } = await filled();
  // The replica is behind.
  const late = [...retained.records];
  manager.seed("task", task(99, TaskState.RUNNING));
  const record = retained.records.at(-1) as Uint8Array;
  const behind = await backupWorld();
  for (const [at, each] of late.entries()) if (at > 0) behind.manager.store.apply(at + 1, each);
  behind.retained.records.splice(0, behind.retained.records.length, ...late, record);
  behind.manager.clock.setTimeout(() => behind.manager.store.apply(late.length + 1, record), 500);
  const { replica } = await open(await backupBytes(await behind.take(), wrapping));
  t.is(replica.version, late.length + 1);
  // It never catches up.
  behind.retained.records.push(record);
  const refused = await t.throwsAsync(behind.take(), { instanceOf: RpcError });
  t.like(refused, { code: Status.UNAVAILABLE });
  t.regex(refused?.message ?? "", /^this manager has read the log up to version 39 of 40: try again, or ask another/);
  // The log is gone, but not the manager.
  retained.isUp = false;
  const alone = await open(await backupBytes(await take(), wrapping));
  t.is(alone.replica.stateHash(), manager.store.stateHash());
  t.regex(alone.missing.join(), /^changes after version 39, if there are any: the log does not answer$/);
});

test("the history that cannot be read is reported, and nothing is taken for it", async (t) => {
  const { manager, retained, take } = await filled();
  retained.records[10] = retained.records[12] as Uint8Array;
  const broken = await t.throwsAsync(take(true), { instanceOf: RpcError });
  t.like(broken, { code: Status.DATA_LOSS });
  t.regex(broken?.message ?? "", /^the log cannot be read beyond version 1\d: take the backup without --history$/);
  retained.first = manager.store.version;
  const gone = await t.throwsAsync(take(true), { instanceOf: RpcError });
  t.regex(gone?.message ?? "", /^the history cannot be read: take the backup without --history$/);
});

test("a file that is truncated, changed, foreign or of the future is rejected with one sentence", async (t) => {
  const { signer, take } = await filled();
  const parts = await take();
  const file = await backupBytes(parts, wrapping);
  const sentences = async (bytes: Uint8Array, by = opening) => (await refusal(t, bytes, by)).message;
  t.is(await sentences(new Uint8Array()), "it is empty");
  t.is(await sentences(file.subarray(0, 10)), "it is truncated: it ends within its first bytes");
  for (const length of [100, 300, 5_000, file.length - 1])
    t.is(await sentences(file.subarray(0, length)), "it is truncated, or was changed after it was made", `${length}`);
  for (const at of [40, 250, 3_000, file.length - 5]) {
    const changed = Buffer.from(file);
    changed[at] = (changed[at] as number) ^ 1;
    t.regex(await sentences(changed), /^it is (?:truncated, or was changed|encrypted for other)/, `${at}`);
  }
  t.is(
    await sentences(Buffer.from("something else entirely")),
    "it is not a backup of Muster ('muster backup' makes one)",
  );
  t.is(
    await sentences(Buffer.from(file.toString("latin1").replace("org/v1\n", "org/v2\n"), "latin1")),
    "its encryption is version 2 of age: use a newer Muster",
  );
  // Within the encryption.
  const encryptedOf = async (bytes: Uint8Array): Promise<Buffer> => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of encrypted(inOrder([bytes]), wrapping)) chunks.push(chunk);
    return Buffer.concat(chunks);
  };
  const recording = await fileOf(sealedParts([headPart()], signer));
  t.is(await sentences(await encryptedOf(recording)), "it is not a backup of Muster ('muster backup' makes one)");
  const future = Buffer.concat([Buffer.from("MUSTBAK\n"), Buffer.from([0, 0, 0, 2]), Buffer.alloc(100)]);
  t.is(
    await sentences(await encryptedOf(future)),
    "its format has version 2, but this Muster reads version 1: use a newer Muster",
  );
  const reject = async (changed: readonly BackupPart[]) => sentences(await backupBytes(changed, wrapping));
  t.is(await reject(parts.slice(0, -1)), "it is truncated: its last part is missing");
  t.is(await reject([...parts, parts[0] as BackupPart]), "it is damaged: parts follow its last one");
  t.is(await reject(sealedAgain(parts.slice(1), signer)), "it is damaged: its first part is missing");
  t.is(await reject(parts.filter((_, at) => at !== 1)), "it is damaged: the snapshot contains 37 of 38 objects");
  t.is(
    await reject([parts[0] as BackupPart, BackupPart.create({}), ...parts.slice(1)]),
    "it has a part that this Muster does not know: use a newer Muster",
  );
  const head = BackupHead.patch(parts[0]?.head ?? BackupHead.create(), { managerId: "other" });
  const renamed = [BackupPart.create({ head }), ...parts.slice(1)];
  t.is(await reject(renamed), "it is damaged: its digest does not fit its contents: it was changed after it was made");
  const elsewhere = BackupHead.patch(head, { clusterId: "cluster2" });
  t.regex(
    await reject(sealedAgain([BackupPart.create({ head: elsewhere }), ...parts.slice(1)], signer)),
    /its signer belongs to cluster cluster1, but it names cluster cluster2$/,
  );
  t.regex(
    await reject(sealedAgain(parts, await createSigner({ role: "swarm-worker" }))),
    /its signer m1 is not a manager$/,
  );
  const { seal } = await open(await backupBytes(sealedAgain(parts, null), wrapping));
  t.is(seal.kind, "unsigned");
});

test("only the passphrase or a recipient's key opens a backup, and the error says which one it needs", async (t) => {
  const { take } = await backupWorld();
  const parts = await take();
  const passphrase = "correct horse battery staple";
  const locked = await backupBytes(parts, { kind: "passphrase", passphrase });
  t.is((await open(locked, { passphrase, identities: [identity] })).head.clusterId, "cluster1");
  const why = async (file: Uint8Array, by: Opening) => {
    const error = await refusal(t, file, by);
    t.is(error.fault, "locked");
    return error.message;
  };
  t.is(
    await why(locked, { passphrase: "another", identities: [] }),
    "wrong passphrase: it is encrypted under another one",
  );
  t.is(await why(locked, opening), "it is encrypted under a passphrase: set --passphrase-file");
  const file = await backupBytes(parts, wrapping);
  const other = await generateIdentity();
  t.regex(await why(file, { passphrase: null, identities: [other] }), /^it is encrypted for other age recipients: set/);
  t.regex(await why(file, { passphrase, identities: [] }), /^it is encrypted for age recipients: set --identity to/);
  // A file that would take hours to try.
  const [, salt = ""] = /scrypt (\S+) 17\n/.exec(locked.toString("latin1")) ?? [];
  const costly = Buffer.from(locked.toString("latin1").replace(`${salt} 17`, `${salt} 30`), "latin1");
  t.regex((await refusal(t, costly, { passphrase, identities: [] })).message, /^its passphrase takes more work than/);
});

test("the keys of a backup come from files, and bad ones are rejected without being shown", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-backup-keys-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const file = (text: string): string => {
    const path = join(folder, String(readdirSync(folder).length));
    writeFileSync(path, text);
    return path;
  };
  const passphrase = file("correct horse battery staple\n");
  t.deepEqual(await wrappingOf({ "passphrase-file": passphrase }), {
    kind: "passphrase",
    passphrase: "correct horse battery staple",
  });
  await t.throwsAsync(wrappingOf({}), { message: /^set either --passphrase-file or --recipient: / });
  await t.throwsAsync(wrappingOf({ "passphrase-file": passphrase, recipient: [recipient] }), {
    message: /^set either/,
  });
  await t.throwsAsync(wrappingOf({ recipient: ["age1nonsense"] }), {
    message: /^invalid argument "age1nonsense" for "--rec/,
  });
  await t.throwsAsync(wrappingOf({ "passphrase-file": file("short") }), {
    message: /^the passphrase has 5 characters: use/,
  });
  t.deepEqual(await openingOf({ identity: [file(`# created\n\n${identity}\n`)] }), opening);
  const bad = file("hunter2\n");
  const error = await t.throwsAsync(openingOf({ identity: [bad] }));
  t.regex(error?.message ?? "", /a line is not an identity/);
  t.notRegex(error?.message ?? "", /hunter2/);
  await t.throwsAsync(openingOf({ identity: [file("# none\n")] }), { message: /has no identity/ });
});

test("a backup that fails leaves the file that was there, and nothing else", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-backup-file-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "cluster.backup");
  writeFileSync(path, "earlier");
  async function* failing(): AsyncGenerator<Uint8Array> {
    yield Buffer.alloc(100_000);
    throw new RpcError(Status.UNAVAILABLE, "the manager is stopping");
  }
  await t.throwsAsync(writeWhole(path, encrypted(failing(), wrapping), "backup"), {
    message: "the manager is stopping",
  });
  t.deepEqual(readdirSync(folder), ["cluster.backup"]);
});
