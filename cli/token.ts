/** `muster token worker|manager [--rotate]`: what a node joins with. */
import { ControlService, KeyRotation, UpdateClusterRequest, type Cluster } from "../proto/gen/messages.ts";
import { command, UsageError, type Command } from "./command.ts";
import { cluster, retryingConflicts, withManager, type ManagerClient } from "./manager-client.ts";
import { UserError } from "./user-error.ts";

async function rotated(client: ManagerClient, role: "worker" | "manager"): Promise<Cluster> {
  return retryingConflicts(async () => {
    const before = await cluster(client);
    const { cluster: after } = await client.call(
      ControlService.methods.UpdateCluster,
      UpdateClusterRequest.create({
        clusterId: before.id,
        clusterVersion: before.meta?.version ?? null,
        spec: before.spec,
        rotation: KeyRotation.create({ workerJoinToken: role === "worker", managerJoinToken: role === "manager" }),
      }),
    );
    return after ?? before;
  });
}

export const token: Command = command({
  operands: "worker|manager",
  min: 1,
  max: 1,
  summary: "Prints the token with which a node joins; --rotate makes a new one first, and the old one is void.",
  options: {
    rotate: { type: "boolean", help: "makes a new one first; nodes cannot join with the old one any more" },
    quiet: { type: "boolean", short: "q", help: "is always so: the token alone is printed" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const [role] = operands;
      if (role !== "worker" && role !== "manager")
        throw new UsageError(`'muster token' takes worker or manager, not '${role}'`);
      const { rootCa } = values.rotate === true ? await rotated(client, role) : await cluster(client);
      const text = rootCa?.joinTokens?.[role] ?? "";
      if (text === "")
        throw new UserError(`the cluster has no ${role} token: make one with 'muster token ${role} --rotate'`);
      shell.print(text);
    }),
});
