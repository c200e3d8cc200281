/** `muster token worker|manager [--rotate]`: prints a join token only. */
import { command, type Command } from "./command.ts";
import { joinRole, joinTokenOf, rotateJoinToken } from "./join-tokens.ts";
import { withManager } from "./manager-client.ts";

export const token: Command = command({
  operands: "worker|manager",
  min: 1,
  max: 1,
  summary: "Display the join token; --rotate replaces it first, which invalidates the old one.",
  options: {
    rotate: { type: "boolean", help: "Rotate the token first; nodes can no longer join with the old one" },
    quiet: { type: "boolean", short: "q", help: "Accepted for compatibility; only the token is printed" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const role = joinRole(operands[0], "token");
      if (values.rotate === true) await rotateJoinToken(client, role);
      shell.print(await joinTokenOf(client, role));
    }),
});
