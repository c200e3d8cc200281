/** `muster token worker|manager [--rotate]`: what a node joins with, alone. */
import { command, type Command } from "./command.ts";
import { joinRole, joinTokenOf, rotateJoinToken } from "./join-tokens.ts";
import { withManager } from "./manager-client.ts";

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
      const role = joinRole(operands[0], "token");
      if (values.rotate === true) await rotateJoinToken(client, role);
      shell.print(await joinTokenOf(client, role));
    }),
});
