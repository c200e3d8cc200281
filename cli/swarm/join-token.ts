/** `muster swarm join-token worker|manager`: prints the command line with which a node joins. */
import { command, type Command } from "../command.ts";
import { joinRole, joinTokenOf, rotateJoinToken } from "../join-tokens.ts";
import { listNodes, withManager } from "../manager-client.ts";

export const joinToken: Command = command({
  operands: "worker|manager",
  min: 1,
  max: 1,
  summary: "Display the command with which a node joins; --rotate replaces the token first.",
  options: {
    rotate: { type: "boolean", help: "Rotate the join token" },
    quiet: { type: "boolean", short: "q", help: "Only display the token" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const role = joinRole(operands[0], "swarm join-token");
      const isQuiet = values.quiet === true;
      if (values.rotate === true) {
        await rotateJoinToken(client, role);
        if (!isQuiet) shell.print(`Successfully rotated ${role} join token.\n`);
      }
      const token = await joinTokenOf(client, role);
      if (isQuiet) return shell.print(token);
      const nodes = await listNodes(client);
      const address =
        nodes.find(({ managerStatus }) => managerStatus?.leader === true)?.managerStatus?.addr ??
        nodes.find(({ managerStatus }) => managerStatus !== null)?.managerStatus?.addr ??
        "";
      shell.print(
        role === "worker"
          ? `To add a worker to this swarm, run one of the following commands:\n\n` +
              `    docker swarm join --token ${token} ${address}\n` +
              `    muster agent --token ${token} --join ${address}\n`
          : "To add a manager to this swarm, run the following command where its NATS can be reached:\n\n" +
              `    muster manager --nats URL --join ${address} --token ${token} --data-dir PATH\n`,
      );
    }),
});
