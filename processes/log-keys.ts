/** The keys for `muster log`: those of a manager's data dir, even when autolock has locked them. */
import { parseUnlockKey } from "../machines/keys/unlock-key.ts";
import type { Random } from "../runtime/ports/index.ts";
import type { Keyring } from "../runtime/store/keyring.ts";
import { LogSilent } from "../runtime/store/log-check.ts";
import { openVault, type LockedVault, type Vault } from "../runtime/store/vault.ts";
import { UserError } from "../lib/user-error.ts";
import type { DataDir } from "./data-dir.ts";
import { keyFileDisk, unusable } from "./key-file.ts";

/** `unlockKey`: as printed by `muster swarm unlock-key`; undefined if not given. The file stays locked. Throws UserError. */
export function keysOf(dataDir: DataDir, random: Random, unlockKey: string | undefined): Vault {
  const found = openVault(keyFileDisk(dataDir), random);
  switch (found.kind) {
    case "open":
      return found.vault;
    case "locked":
      return unlocked(dataDir, found.vault, unlockKey);
    case "broken":
      throw unusable(dataDir, new Error(`cannot use the manager's key file: ${found.reason}`));
  }
}

function unlocked(dataDir: DataDir, vault: LockedVault, text: string | undefined): Vault {
  if (text === undefined) {
    throw new UserError(
      "this manager's keys are locked: set --unlock-key-file (run 'muster swarm unlock-key' on a running manager to get the key), or use the data dir of a manager that is not locked",
    );
  }
  const key = parseUnlockKey(text);
  if (key === null) throw new UserError("invalid unlock key: expected the prefix SWMKEY-1- followed by 43 characters");
  const opened = vault.unlock(key);
  if (opened.kind === "open") return opened.vault;
  if (opened.kind === "broken")
    throw unusable(
      dataDir,
      new Error("the unlock key matches the manager's key file, but the file's contents are damaged"),
    );
  throw new UserError("wrong unlock key: this manager was locked with another one");
}

/** Explains why a log cannot be read with these keys; call before reading begins. */
export function unreadable(keyring: Keyring): (error: unknown) => UserError {
  // Collected here, since missing keys are retried and the list may be empty for a moment.
  const missing = new Set<string>();
  keyring.onChange(() => {
    for (const id of keyring.missing) missing.add(id);
  });
  return (cause) => {
    const { message } = cause as Error;
    if (missing.size === 0) return new UserError(`cannot read the log: ${message}`, { cause });
    const what = cause instanceof LogSilent ? `record ${cause.sequence}` : "a snapshot";
    return new UserError(
      `cannot read the log: ${what} is sealed under data key ${[...missing].join(", ")}, which this data dir does not have: ` +
        "use the data dir of a manager that has it, or restore this one's key file from a copy",
      { cause },
    );
  };
}
