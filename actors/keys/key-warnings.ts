/** What an operator should know of the keys, in sentences: shown with the manager's status. */
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
  if (keyring.lacking.length > 0) {
    warnings.push(
      `The log is read no further: its data key ${keyring.lacking.join(", ")} is lacking, and no manager that answers has it.`,
    );
  }
  if (vault.failure !== null) {
    warnings.push(
      `This manager's key file cannot be written (${vault.failure}): it is as it was, and what was to change in it waits.`,
    );
  }
  const managers = [...store.all("manager")];
  const key = newest(keyring.keys);
  const waitingFor = managers.filter(({ alive, heldKeys }) => alive && !heldKeys.some(({ id }) => id === key?.id));
  if (key !== null && key.id !== keyring.current?.id && waitingFor.length > 0) {
    const names = waitingFor.map(({ id }) => store.get("node", id)?.description?.hostname || id);
    warnings.push(
      `The log goes on under the old data key until every manager has the new one: ${names.join(", ")} lacks it.`,
    );
  }
  for (const cluster of store.all("cluster")) {
    const handed = managers.map(({ handedLock }) => handedLock);
    if (lockState(vault.lock, fingerprint(unlockKeyOf(cluster) ?? new Uint8Array()), handed) === "unread") {
      warnings.push(
        "Nobody has been given the unlock key yet, so this manager's keys are locked as before: run 'muster swarm unlock-key'.",
      );
    }
  }
  return warnings;
}
