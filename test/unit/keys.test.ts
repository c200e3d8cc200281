// The keys of managers: the lock of their key files, how they obtain data keys, and when they start to write under a new one.
import test, { type ExecutionContext } from "ava";
import { bootstrapCluster } from "../../actors/manager/bootstrap.ts";
import { createCa } from "../../actors/certificates/ca.ts";
import { createTroubles } from "../../actors/manager/troubles.ts";
import { createDataKeys, startKeyFetch, startKeyRotation, type DataKeyParts } from "../../actors/keys/data-keys.ts";
import { keyWarnings } from "../../actors/keys/key-warnings.ts";
import { startManagerLock } from "../../actors/keys/manager-lock.ts";
import { keyStep, type KeySituation } from "../../machines/keys/data-key.machine.ts";
import { formatUnlockKey, parseUnlockKey, unlockKeyBytes, unlockKeyOf } from "../../machines/keys/unlock-key.ts";
import {
  ClusterSpec,
  EncryptionConfig,
  GetClusterRequest,
  GetDataKeysRequest,
  GetLockRequest,
  GetUnlockKeyRequest,
  KeyRotation,
  ListClustersRequest,
  Manager,
  UnlockRequest,
  UpdateClusterRequest,
  type Cluster,
  type GetDataKeysResponse,
  Trouble_Kind,
} from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { Keyring } from "../../runtime/store/keyring.ts";
import { fingerprint } from "../../runtime/store/seal.ts";
import { openVault, type KeyFileDisk, type Vault } from "../../runtime/store/vault.ts";
import { world } from "../support/control.ts";
import { call, refusalOf, testManager } from "../support/manager.ts";

const random = new SimRandom("keys");

function memoryDisk(): KeyFileDisk & { data: Uint8Array | null; fails: boolean } {
  const disk = {
    data: null as Uint8Array | null,
    fails: false,
    read: () => disk.data,
    write: (data: Uint8Array) => {
      if (disk.fails) throw new Error("no space left on device");
      disk.data = data;
    },
  };
  return disk;
}

function emptyVault(disk: KeyFileDisk = memoryDisk()): Vault {
  const found = openVault(disk, random);
  if (found.kind !== "open") throw new Error("not open");
  return found.vault;
}

test("an unlock key is written as SwarmKit writes it, and only that form is read back", (t) => {
  const key = random.bytes(unlockKeyBytes);
  const text = formatUnlockKey(key);
  t.regex(text, /^SWMKEY-1-[A-Za-z0-9+/]{43}$/);
  t.deepEqual(parseUnlockKey(` ${text}\n`), key);
  for (const wrong of [
    "",
    "SWMKEY-1-",
    text.slice(0, -1),
    `${text}=`,
    text.replace("SWMKEY-1", "SWMKEY-2"),
    `${text}A`,
  ])
    t.is(parseUnlockKey(wrong), null, wrong);
  t.is(parseUnlockKey(`SWMKEY-1-${"A".repeat(42)}B`), null, "spare bits are zero");
});

/** Control over a created cluster, and its unlock key. */
async function founded() {
  const { env, control, seed } = world();
  await bootstrapCluster(env, pki, { advertise: "192.0.2.1:2377" });
  const stored = (): Cluster => [...env.store.all("cluster")][0] as Cluster;
  const update = async (autoLockManagers: boolean, managerUnlockKey = false): Promise<Uint8Array | null> => {
    const { id, meta, spec } = stored();
    const encryptionConfig = EncryptionConfig.create({ autoLockManagers });
    await control.UpdateCluster(
      UpdateClusterRequest.create({
        clusterId: id,
        clusterVersion: meta?.version ?? null,
        spec: ClusterSpec.patch(spec ?? ClusterSpec.create({}), { encryptionConfig }),
        rotation: KeyRotation.create({ managerUnlockKey }),
      }),
      call(),
    );
    return unlockKeyOf(stored());
  };
  return { env, control, seed, stored, update };
}

test("autolock has an unlock key while it is on, a new one on request, and Control never shows it", async (t) => {
  const { env, control, stored, update } = await founded();
  const ca = createCa(env, pki);
  t.teardown(() => ca.stop());
  const asked = async (): Promise<Uint8Array> =>
    (await ca.ca.GetUnlockKey(GetUnlockKeyRequest.create({}), call())).unlockKey;
  t.is((await asked()).length, 0);
  t.is(await update(false, true), null, "a rotation without autolock is ignored");
  const first = await update(true);
  t.is(first?.length, unlockKeyBytes);
  t.deepEqual(new Uint8Array(await asked()), new Uint8Array(first ?? []));
  t.deepEqual(await update(true), first, "another update keeps it");
  const second = await update(true, true);
  t.notDeepEqual(second, first);
  const shown = [
    (await control.GetCluster(GetClusterRequest.create({ clusterId: stored().id }), call())).cluster,
    ...(await control.ListClusters(ListClustersRequest.create({}), call())).clusters,
  ];
  for (const cluster of shown) t.deepEqual(cluster?.unlockKeys, []);
  t.is(await update(false), null);
});

function locking(t: ExecutionContext, disk = memoryDisk()) {
  const { env } = testManager();
  const lock = startManagerLock({ host: env.host, random, telemetry: env.telemetry, disk });
  t.teardown(() => lock.stop());
  const unlock = (unlockKey: string) =>
    refusalOf(() => lock.handlers.Unlock(UnlockRequest.create({ unlockKey }), call()));
  return { lock, unlock };
}

test("a locked manager reports it, rejects wrong and invalid keys, and opens with the right one", async (t) => {
  const disk = memoryDisk();
  const key = random.bytes(unlockKeyBytes);
  const vault = emptyVault(disk);
  vault.update({ nodeKey: "kept" });
  vault.relock(key);
  const before = disk.data;
  const { lock, unlock } = locking(t, disk);
  t.true(lock.isLocked());
  t.like(await lock.handlers.GetLock(GetLockRequest.create({}), call()), { locked: true });
  t.like(await unlock("garbage"), { code: Status.INVALID_ARGUMENT });
  t.deepEqual(await unlock(formatUnlockKey(random.bytes(unlockKeyBytes))), {
    code: Status.PERMISSION_DENIED,
    message: "swarm could not be unlocked: invalid key provided",
  });
  t.true(lock.isLocked());
  t.is(disk.data, before, "a wrong key changes nothing");
  t.is(await unlock(formatUnlockKey(key)), null);
  t.is((await lock.opened()).fields.nodeKey, "kept");
  t.false(lock.isLocked());
  t.like(await unlock(formatUnlockKey(key)), { code: Status.FAILED_PRECONDITION });
});

test("a damaged key file is reported as damaged, and left unchanged", async (t) => {
  const disk = memoryDisk();
  disk.data = Uint8Array.of(255, 255, 255);
  const { lock } = locking(t, disk);
  await t.throwsAsync(lock.opened(), { message: /cannot use the manager.s key file/ });
  t.deepEqual(disk.data, Uint8Array.of(255, 255, 255));
});

test("the key file is locked, relocked and opened as the cluster requires, also after a failed write", async (t) => {
  const { env, seed, update, stored } = await founded();
  const disk = memoryDisk();
  const { env: own, clock } = testManager();
  const lock = startManagerLock({ host: own.host, random, telemetry: own.telemetry, disk });
  t.teardown(() => lock.stop());
  const vault = await lock.opened();
  vault.update({ nodeKey: "canary" });
  lock.follow(env.store);
  t.is(vault.lock, "");
  const run = (ms: number) => clock.run({ untilMs: clock.now() + ms });
  const handOut = (key: Uint8Array) => seed("manager", Manager.create({ id: "m2", handedLock: fingerprint(key) }));
  const first = (await update(true)) as Uint8Array;
  await run(10_000);
  t.is(vault.lock, "", "nobody has received the key yet");
  handOut(first);
  await run(500);
  t.is(vault.lock, "", "and the answer may still be on its way");
  await run(1_000);
  t.is(vault.lock, fingerprint(first));
  t.false(Buffer.from(disk.data as Uint8Array).includes("canary"));

  disk.fails = true;
  const second = (await update(true, true)) as Uint8Array;
  handOut(second);
  await run(2_000);
  t.is(vault.lock, fingerprint(first), "the old key still opens it");
  disk.fails = false;
  await run(8_000);
  t.is(vault.lock, fingerprint(second));
  const third = (await update(true, true)) as Uint8Array;
  handOut(third);
  await update(true, true);
  await run(5_000);
  t.is(vault.lock, fingerprint(second), "replaced before the file was locked with it");
  await update(false);
  await run(2_000);
  t.is(vault.lock, "");
  t.is(stored().unlockKeys.length, 0);
});

const situation: KeySituation = {
  newest: { id: "k1", generation: 1, lock: "" },
  currentId: "k1",
  clusterLock: "",
  ownLock: "",
  managers: [
    { id: "m1", keyIds: ["k1"] },
    { id: "m2", keyIds: ["k1"] },
  ],
};

test("a data key is created when the lock has changed, distributed, and used once every living manager has it", (t) => {
  t.deepEqual(keyStep(situation), { kind: "rest" });
  t.deepEqual(keyStep({ ...situation, newest: null, currentId: "" }), { kind: "rest" });
  const locked = { ...situation, clusterLock: "A", ownLock: "A" };
  t.deepEqual(keyStep({ ...locked, ownLock: "" }), { kind: "rest" }, "not before its own file is locked");
  t.deepEqual(keyStep(locked), { kind: "make" });
  const made = { ...locked, newest: { id: "k2", generation: 2, lock: "A" } };
  t.deepEqual(keyStep(made), { kind: "spread", keyId: "k2", waitingFor: ["m1", "m2"] });
  const half = { ...made, managers: [{ id: "m1", keyIds: ["k1", "k2"] }, ...made.managers.slice(1)] };
  t.deepEqual(keyStep(half), { kind: "spread", keyId: "k2", waitingFor: ["m2"] });
  const all = { ...made, managers: made.managers.map(({ id }) => ({ id, keyIds: ["k1", "k2"] })) };
  t.deepEqual(keyStep(all), { kind: "use", keyId: "k2" });
  t.deepEqual(keyStep({ ...all, currentId: "k2" }), { kind: "rest" });
  t.deepEqual(keyStep({ ...all, clusterLock: "B", ownLock: "B" }), { kind: "make" }, "a rotation creates another");
  const off = { ...all, currentId: "k2", clusterLock: "", ownLock: "" };
  t.deepEqual(keyStep(off), { kind: "rest" }, "without autolock the key stays");
});

function keyWorld(fetchKeys: DataKeyParts["fetchKeys"], seeds: readonly string[] = []) {
  const manager = testManager("m1");
  const disk = memoryDisk();
  const vault = emptyVault(disk);
  const keyring = new Keyring(vault, random);
  const parts: DataKeyParts = { vault, keyring, fetchKeys, seeds, addr: "m1:2377" };
  const run = (ms: number) => manager.clock.run({ untilMs: manager.clock.now() + ms });
  return { ...manager, vault, keyring, parts, run, disk };
}

test("a manager gives its keys to permitted callers, and reports when it lacks the requested one", async (t) => {
  const { keyring, parts } = keyWorld(() => Promise.reject(new Error("unused")));
  const handlers = createDataKeys(parts);
  const ask = (keyId: string) => handlers.GetDataKeys(GetDataKeysRequest.create({ keyId }), call());
  t.deepEqual((await ask("")).keys, []);
  const { id } = keyring.forAppend(4);
  const answer = await ask(id);
  t.deepEqual(
    answer.keys.map((key) => key.id),
    [id],
  );
  t.is(answer.plainThrough, 4);
  t.like(await refusalOf(() => ask("other")), { code: Status.NOT_FOUND });
});

test("missing keys are requested from those who announced them, then repeatedly from all, and the answer is saved", async (t) => {
  const asked: string[] = [];
  let isUp = false;
  const source = keyWorld(() => Promise.reject(new Error("unused")));
  const { id } = source.keyring.forAppend(0);
  const world = keyWorld(
    async (address, keyId): Promise<GetDataKeysResponse> => {
      asked.push(address);
      if (!isUp || address !== "m3:2377") throw new RpcError(Status.UNAVAILABLE, "nobody there");
      return createDataKeys(source.parts).GetDataKeys(GetDataKeysRequest.create({ keyId }), call());
    },
    ["seed:2377"],
  );
  const { env, keyring, vault, seed, run, parts, disk } = world;
  const fetching = startKeyFetch(env, parts);
  t.teardown(() => fetching.stop());
  seed("manager", Manager.create({ id: "m2", addr: "m2:2377", alive: true }));
  await run(100);
  t.deepEqual(asked, [], "nothing is missing");
  t.deepEqual(vault.fields.peers, ["m2:2377"]);
  seed("manager", Manager.create({ id: "m3", addr: "m3:2377", alive: true, heldKeys: source.keyring.held }));
  await run(100);
  t.deepEqual(asked, ["m3:2377", "m2:2377", "seed:2377"]);
  isUp = true;
  await run(1_500);
  t.is(keyring.find(id)?.id, id);
  t.is(emptyVault(disk).dataKeys[0]?.id, id, "it is on the disk");
  const { length } = asked;
  await run(5_000);
  t.is(asked.length, length, "and nobody is asked any more");
});

test("a log sealed under an unavailable key is a trouble that names the key and what to do, until reading continues", async (t) => {
  const world = keyWorld(() => Promise.reject(new RpcError(Status.UNAVAILABLE, "nobody there")), ["seed:2377"]);
  const { env, keyring, seed, run, parts, clock, telemetry } = { ...world, ...world.env };
  const troubles = createTroubles({ clock, telemetry });
  const fetching = startKeyFetch(env, { ...parts, troubles });
  t.teardown(() => fetching.stop());
  seed("manager", Manager.create({ id: "m3", addr: "m3:2377", alive: true, heldKeys: [{ id: "0badc0de" } as never] }));
  await run(3_000);
  t.is(troubles.cause(), null, "the key of another manager is not needed yet");
  keyring.reportMissing("0badc0de", "record");
  await run(3_000);
  t.regex(
    troubles.cause() ?? "",
    /^cannot read the log: it is sealed under data key 0badc0de, which this manager does not have \(.*nobody there.*\): start a manager that has it/,
  );
  t.deepEqual(
    troubles.all().map(({ kind }) => kind),
    [Trouble_Kind.KEY_LACKING],
  );
  // It was found after all, or was named by mistake: reading continues.
  keyring.clearMissing("0badc0de");
  seed("manager", Manager.create({ id: "m3", addr: "m3:2377", alive: true }));
  t.is(troubles.cause(), null);
});

test("a key whose name was damaged in transit causes no trouble once the record was reread, even if nothing follows it", async (t) => {
  const world = keyWorld(() => Promise.reject(new RpcError(Status.NOT_FOUND, "not here")), ["seed:2377"]);
  const { env, keyring, run, parts } = world;
  const troubles = createTroubles(env);
  const fetching = startKeyFetch(env, { ...parts, troubles });
  t.teardown(() => fetching.stop());
  for (let time = 1; time <= 2; time += 1) {
    keyring.reportMissing("damaged", "record");
    await run(3_000);
    t.regex(troubles.cause() ?? "", /data key damaged/, `time ${time}`);
    keyring.clearMissing("damaged");
    await run(60_000);
    t.is(troubles.cause(), null);
  }
});

test("Y1: a manager that is rejected repeatedly gives up, but not because another lags for a while", async (t) => {
  const { id } = keyWorld(() => Promise.reject(new Error("unused"))).keyring.forAppend(0);
  const denied = new RpcError(Status.PERMISSION_DENIED, "not part of OUs: [swarm-manager]");
  let answers: () => RpcError = () => denied;
  const reasons: string[] = [];
  const world = keyWorld(async () => Promise.reject(answers()), ["seed:2377", "other:2377"]);
  const { env, seed, run, parts } = world;
  const fetching = startKeyFetch(env, { ...parts, onDenied: (reason) => reasons.push(reason) });
  t.teardown(() => fetching.stop());
  seed("manager", Manager.create({ id: "m3", addr: "m3:2377", alive: true, heldKeys: [{ id } as never] }));
  await run(8_000);
  t.deepEqual(reasons, []);
  answers = () => new RpcError(Status.UNAVAILABLE, "nobody there");
  await run(1_000);
  answers = () => denied;
  await run(8_500);
  t.deepEqual(reasons, [], "it starts over");
  await run(3_000);
  t.regex(reasons[0] ?? "", /other:2377: PERMISSION_DENIED: not part of OUs/);
});

test("after a change of the lock the leader creates a key, waits for the others and then writes under it", async (t) => {
  const { env, keyring, vault, seed, parts, store } = keyWorld(() => Promise.reject(new Error("unused")));
  const first = keyring.forAppend(0);
  const { stored, update } = await founded();
  const held = (id: string, keys = keyring.held): Manager =>
    Manager.create({ id, addr: id, alive: true, heldKeys: keys });
  seed("manager", held("m1"), held("m2"));
  const rotation = startKeyRotation(env, parts);
  t.teardown(() => rotation.stop());
  const unlockKey = (await update(true)) as Uint8Array;
  seed("cluster", stored());
  t.is(keyring.keys.length, 1, "not before its own file is locked");
  vault.relock(unlockKey);
  t.is(keyring.keys.length, 2);
  const made = keyring.keys[1];
  t.is(made?.lock, fingerprint(unlockKey));
  keyring.met(store.version, first.id);
  t.is(keyring.current?.id, first.id);
  const told = (): string => keyWarnings(env, parts).join(" ");
  t.regex(told(), /until every manager has the new one; still missing on: m1, m2/);
  const before = [...keyring.held].slice(0, 1);
  seed("manager", held("m1"), held("m2", before));
  t.is(keyring.current?.id, first.id, "the other one lacks it");
  seed("manager", held("m2"));
  t.is(keyring.current?.id, made?.id);
  t.is(told(), "");
  await update(true, true);
  seed("cluster", stored());
  t.regex(told(), /after somebody has read it: run .muster swarm unlock-key/);
  keyring.reportMissing("elsewhere", "record");
  t.regex(told(), /data key elsewhere is missing/);
  Object.defineProperty(vault, "failure", { value: "ENOSPC: no space left on device" });
  t.regex(told(), /Cannot write this manager.s key file \(ENOSPC/);
});
