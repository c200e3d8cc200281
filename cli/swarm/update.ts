/** `muster swarm update`: changes cluster settings. Absent flags change nothing. */
import { ClusterSpec, EncryptionConfig } from "../../proto/gen/messages.ts";
import { updateCluster } from "../cluster-update.ts";
import { command, type Command } from "../command.ts";
import { withManager } from "../manager-client.ts";
import { clusterSettingOptions, withSettings, type ClusterSettings } from "./settings.ts";
import { currentUnlockKey, printUnlockKey } from "./unlock-key.ts";

/** Flag values; absent flags are undefined. */
interface UpdateFlags extends ClusterSettings {
  readonly autolock?: boolean | undefined;
}

/** Applies each flag in turn. */
function changed(spec: ClusterSpec, { autolock, ...settings }: UpdateFlags): ClusterSpec {
  let next = withSettings(spec, settings);
  if (autolock !== undefined) {
    const encryptionConfig = next.encryptionConfig ?? EncryptionConfig.create({});
    next = ClusterSpec.patch(next, {
      encryptionConfig: EncryptionConfig.patch(encryptionConfig, { autoLockManagers: autolock }),
    });
  }
  return next;
}

export const update: Command = command({
  summary: "Update settings of the cluster.",
  options: {
    autolock: {
      type: "boolean",
      help: "Lock managers when they restart, until the unlock key is given; --autolock=false turns it off",
    },
    ...clusterSettingOptions,
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const { before } = await updateCluster(client, { spec: (spec) => changed(spec, values) });
      shell.print("Swarm updated.");
      const wasLocked = before.spec?.encryptionConfig?.autoLockManagers === true;
      if (values.autolock === true && !wasLocked) printUnlockKey(shell, await currentUnlockKey(client));
    }),
});
