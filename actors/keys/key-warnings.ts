/** Warnings about keys, in sentences: shown with the manager's status. */
import { lockState, unlockKeyOf } from "../../machines/keys/unlock-key.ts";
import { newest } from "../../runtime/store/keyring.ts";
import { fingerprint } from "../../runtime/store/seal.ts";
import type { DataKeyParts } from "./data-keys.ts";
import type { Environment } from "../environment.ts";

export function keyWarnings(
  { store }: Environment,
  { keyring, vault }: Pick<DataKeyParts, "keyring" | "vault">,
): readonly string[] {
  const warnings: string[] = [];
  if (keyring.missing.length > 0) {
    warnings.push(
      `Cannot read the log any further: data key ${keyring.missing.join(", ")} is missing, and no reachable manager has it.`,
    );
  }
  if (vault.failure !== null) {
    warnings.push(`Cannot write this manager's key file (${vault.failure}): it is unchanged, and the change waits.`);
  }
  const managers = [...store.all("manager")];
  const key = newest(keyring.keys);
  const waitingFor = managers.filter(({ alive, heldKeys }) => alive && !heldKeys.some(({ id }) => id === key?.id));
  if (key !== null && key.id !== keyring.current?.id && waitingFor.length > 0) {
    const names = waitingFor.map(({ id }) => store.get("node", id)?.description?.hostname || id);
    warnings.push(
      `The log uses the old data key until every manager has the new one; still missing on: ${names.join(", ")}.`,
    );
  }
  for (const cluster of store.all("cluster")) {
    const handed = managers.map(({ handedLock }) => handedLock);
    if (lockState(vault.lock, fingerprint(unlockKeyOf(cluster) ?? new Uint8Array()), handed) === "unread") {
      warnings.push(
        "The new unlock key takes effect on this manager after somebody has read it: run 'muster swarm unlock-key'.",
      );
    }
  }
  return warnings;
}
