// A manager's key file: whatever dies when, one key opens it, and nothing of it is readable while it is locked.
import test from "ava";
import fc from "fast-check";
import { DataKey } from "../../proto/gen/messages.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { fingerprint } from "../../runtime/store/seal.ts";
import { openVault, type KeyFileDisk, type Vault } from "../../runtime/store/vault.ts";

const random = new SimRandom("vault");
const [first, second] = [random.bytes(32), random.bytes(32)];
const dataKey = DataKey.create({ id: "k1", generation: 1, key: random.bytes(32) });
const contents = { nodeKey: "canary key", nodeCertificate: "canary certificate", dataKeys: [dataKey], plainThrough: 3 };

class Killed extends Error {}

/** A disk whose process is killed before or after a write. */
class Disk implements KeyFileDisk {
  data: Uint8Array | null;
  writes = 0;
  dies: { readonly at: number; readonly after: boolean } | null = null;
  constructor(data: Uint8Array | null = null) {
    this.data = data;
  }
  read = (): Uint8Array | null => this.data;
  write(data: Uint8Array): void {
    this.writes += 1;
    const dies = this.dies?.at === this.writes ? this.dies : null;
    if (dies !== null && !dies.after) throw new Killed();
    this.data = data;
    if (dies !== null) throw new Killed();
  }
}

function opened(disk: KeyFileDisk, unlockKey: Uint8Array | null = null): Vault | null {
  const found = openVault(disk, random);
  if (found.kind === "open") return found.vault;
  if (found.kind === "broken" || unlockKey === null) return null;
  const unlocked = found.vault.unlock(unlockKey);
  return unlocked.kind === "open" ? unlocked.vault : null;
}

test("a key file keeps its content, open or locked", (t) => {
  const disk = new Disk();
  const vault = opened(disk);
  t.deepEqual(vault?.dataKeys, []);
  vault?.update(contents);
  t.like(opened(disk)?.fields, { nodeKey: "canary key", nodeCertificate: "canary certificate" });
  t.true(Buffer.from(disk.data as Uint8Array).includes("canary"));

  vault?.relock(first);
  t.is(vault?.lock, fingerprint(first));
  t.false(Buffer.from(disk.data as Uint8Array).includes("canary"));
  t.false(Buffer.from(disk.data as Uint8Array).includes(Buffer.from(dataKey.key)));
  t.is(opened(disk), null, "not without the key");
  const again = opened(disk, first);
  t.like(again?.fields, { nodeKey: "canary key", plainThrough: 3 });
  t.deepEqual(new Uint8Array(again?.dataKeys[0]?.key ?? []), dataKey.key);
  again?.update({ peers: ["192.0.2.1:2377"] });
  t.deepEqual(opened(disk, first)?.fields.peers, ["192.0.2.1:2377"], "and additions are locked too");

  const { writes } = disk;
  again?.relock(first);
  t.is(disk.writes, writes, "nothing is written for an existing key");
  again?.relock(null);
  t.is(opened(disk)?.fields.nodeKey, "canary key");
});

test("a wrong key and a damaged file are distinguished, and neither changes anything", (t) => {
  const disk = new Disk();
  const vault = opened(disk);
  vault?.update(contents);
  vault?.relock(first);
  const locked = openVault(disk, random);
  if (locked.kind !== "locked") return t.fail();
  const { writes } = disk;
  t.deepEqual(locked.vault.unlock(second), { kind: "wrong key" });
  t.deepEqual(locked.vault.unlock(new Uint8Array()), { kind: "wrong key" });
  t.is(locked.vault.unlock(first).kind, "open");
  t.is(disk.writes, writes);
  const damaged = Uint8Array.from(disk.data as Uint8Array);
  damaged[damaged.length - 1] = (damaged.at(-1) as number) ^ 1;
  const found = openVault(new Disk(damaged), random);
  t.is(found.kind === "locked" ? found.vault.unlock(first).kind : null, "broken");
});

test("whatever the file contains, opening it does not throw", (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (data) => {
      const found = openVault(new Disk(data), random);
      return found.kind !== "locked" || found.vault.unlock(first).kind !== "open";
    }),
  );
  t.is(openVault(new Disk(new Uint8Array()), random).kind, "broken");
});

test("killed at any write of a switch or rotation, it opens with the old or the new key and has lost nothing", (t) => {
  const steps: readonly ((vault: Vault) => void)[] = [
    (vault) => vault.relock(first),
    (vault) => vault.update({ dataKeys: [...vault.dataKeys, DataKey.patch(dataKey, { id: "k2", generation: 2 })] }),
    (vault) => vault.relock(second),
    (vault) => vault.update({ peers: ["192.0.2.9:2377"] }),
    (vault) => vault.relock(null),
  ];
  const keysAfter = [null, first, first, second, second, null] as const;
  for (let at = 1; at <= steps.length; at += 1) {
    for (const after of [false, true]) {
      const disk = new Disk();
      const vault = opened(disk) as Vault;
      vault.update(contents);
      disk.writes = 0;
      disk.dies = { at, after };
      t.throws(() => steps.forEach((step) => step(vault)), { instanceOf: Killed });
      const [old, next] = [keysAfter[at - 1] ?? null, keysAfter[at] ?? null];
      const ways = [old, next].map((key) => opened(new Disk(disk.data), key)).filter((found) => found !== null);
      t.true(ways.length > 0, `write ${at}, ${after ? "after" : "before"}`);
      t.is(ways[0]?.fields.nodeKey, "canary key");
      t.deepEqual(new Uint8Array(ways[0]?.dataKeys[0]?.key ?? []), dataKey.key);
      // A process that continues after a failed write still has its earlier state.
      t.is(vault.lock, old === null ? "" : fingerprint(old));
    }
  }
});

test("a failed write throws, changes nothing and is remembered until one succeeds", (t) => {
  const disk = new Disk();
  const vault = opened(disk) as Vault;
  vault.update(contents);
  disk.write = () => {
    throw new Error("ENOSPC: no space left on device");
  };
  t.throws(() => vault.update({ nodeKey: "new" }), { message: /ENOSPC/ });
  t.is(vault.fields.nodeKey, "canary key");
  t.regex(vault.failure ?? "", /ENOSPC/);
  disk.write = Disk.prototype.write;
  vault.update({ nodeKey: "new" });
  t.is(vault.failure, null);
  t.is(opened(disk)?.fields.nodeKey, "new");
});
