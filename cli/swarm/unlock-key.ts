/** `muster swarm unlock-key`: prints the key that unlocks a restarted manager while autolock is on. */
import { CAService, GetUnlockKeyRequest, KeyRotation } from "../../proto/gen/messages.ts";
import { formatUnlockKey } from "../../machines/keys/unlock-key.ts";
import { updateCluster } from "../cluster-update.ts";
import { command, type Command } from "../command.ts";
import { cluster, withManager, type ManagerClient } from "../manager-client.ts";
import type { Shell } from "../shell.ts";
import { UserError } from "../../lib/user-error.ts";

/** Empty while autolock is off. */
export async function currentUnlockKey(client: ManagerClient): Promise<string> {
  const { unlockKey: key } = await client.call(CAService.methods.GetUnlockKey, GetUnlockKeyRequest.create({}));
  return key.length === 0 ? "" : formatUnlockKey(key);
}

export function printUnlockKey(shell: Shell, key: string): void {
  shell.print(
    "To unlock a manager after it restarts, run 'muster swarm unlock' there and provide the following key:\n\n" +
      `    ${key}\n\n` +
      "Keep it in a password manager: without it no manager can be started again.",
  );
}

export const unlockKey: Command = command({
  summary: "Display the unlock key of managers; --rotate replaces it first.",
  options: {
    rotate: { type: "boolean", help: "Rotate the unlock key" },
    quiet: { type: "boolean", short: "q", help: "Only display the unlock key" },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const isQuiet = values.quiet === true;
      if (values.rotate === true) {
        if ((await cluster(client)).spec?.encryptionConfig?.autoLockManagers !== true)
          throw new UserError("cannot rotate because autolock is not turned on");
        await updateCluster(client, { rotation: KeyRotation.create({ managerUnlockKey: true }) });
        if (!isQuiet) shell.print("Successfully rotated manager unlock key.\n");
      }
      const key = await currentUnlockKey(client);
      if (key === "")
        throw new UserError("no unlock key is set: turn autolock on with 'muster swarm update --autolock'");
      if (isQuiet) shell.print(key);
      else printUnlockKey(shell, key);
    }),
});
