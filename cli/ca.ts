/** `muster ca`: the root certificate that every node of the cluster trusts. */
import { command, type Command } from "./command.ts";
import { cluster, withManager } from "./manager-client.ts";

export const ca: Command = command({
  summary: "Prints the cluster's root certificate (PEM).",
  options: {},
  run: ({ shell }) =>
    withManager(shell, async (client) => {
      const { rootCa } = await cluster(client);
      shell.print(new TextDecoder().decode(rootCa?.caCert).trimEnd());
    }),
});
