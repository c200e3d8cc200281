// The keys with which `muster log` opens a log, also of a manager that autolock has locked.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { openDataDir } from "../../processes/data-dir.ts";
import { keyFileDisk } from "../../processes/key-file.ts";
import { keysOf, unreadable } from "../../processes/log-keys.ts";
import { UserError } from "../../lib/user-error.ts";
import { formatUnlockKey, unlockKeyBytes } from "../../machines/keys/unlock-key.ts";
import { checkLog } from "../../runtime/store/log-check.ts";
import { Keyring } from "../../runtime/store/keyring.ts";
import { SealedLog } from "../../runtime/store/sealed-log.ts";
import { openVault } from "../../runtime/store/vault.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { testManager } from "../support/manager.ts";
import { TestLog } from "../support/retained.ts";

const random = new SimRandom("log-command");

function lockedFolder(t: ExecutionContext) {
  const dataDir = openDataDir(mkdtempSync(join(tmpdir(), "muster-keys-")));
  t.teardown(() => {
    dataDir.release();
    rmSync(dataDir.path, { recursive: true });
  });
  const found = openVault(keyFileDisk(dataDir), random);
  if (found.kind !== "open") throw new Error("not open");
  const { id } = new Keyring(found.vault, random).forAppend(0);
  const unlockKey = random.bytes(unlockKeyBytes);
  const open = () => keysOf(dataDir, random, undefined);
  t.is(open().dataKeys[0]?.id, id);
  found.vault.relock(unlockKey);
  return { dataDir, id, unlockKey };
}

test("locked keys are opened with the unlock key; without it the error says where to get it", (t) => {
  const { dataDir, id, unlockKey } = lockedFolder(t);
  const failure = (text: string | undefined): string =>
    t.throws(() => keysOf(dataDir, random, text), { instanceOf: UserError })?.message ?? "";
  t.regex(failure(undefined), /keys are locked.*--unlock-key-file.*muster swarm unlock-key/);
  t.regex(failure("SWMKEY-2"), /invalid unlock key: expected the prefix SWMKEY-1-/);
  t.regex(failure(formatUnlockKey(random.bytes(unlockKeyBytes))), /wrong unlock key/);
  t.is(keysOf(dataDir, random, formatUnlockKey(unlockKey)).dataKeys[0]?.id, id);
  t.is(openVault(keyFileDisk(dataDir), random).kind, "locked", "it stays locked on the disk");
});

test("a log under a key that the data dir lacks is rejected with the key's id and what to do", async (t) => {
  const { clock } = testManager();
  const keys = () => {
    const found = openVault({ read: () => null, write: () => {} }, random);
    if (found.kind !== "open") throw new Error("not open");
    return new Keyring(found.vault, random);
  };
  const [writer, reader] = [keys(), keys()];
  const kept = new TestLog([], clock);
  const records: Uint8Array[] = [];
  const sealing = new SealedLog(
    {
      ...kept.log,
      append: (data) => Promise.resolve({ kind: "appended" as const, sequence: records.push(data) }),
    },
    writer,
    random,
    clock,
  );
  await sealing.append(new Uint8Array([1]), 0);
  reader.forAppend(0);
  const { blobs, log } = new TestLog(records as Uint8Array<ArrayBuffer>[], clock);
  const why = unreadable(reader);
  let message = "";
  const checking = checkLog({ blobs, log: new SealedLog(log, reader, random, clock), clock }).catch(
    (error: unknown) => {
      message = why(error).message;
    },
  );
  await clock.run({ until: () => message !== "", untilMs: clock.now() + 60_000 });
  await checking;
  t.is(
    message,
    `cannot read the log: record 1 is sealed under data key ${writer.current?.id ?? ""}, which this data dir does not have: ` +
      "use the data dir of a manager that has it, or restore this one's key file from a copy",
  );
});
