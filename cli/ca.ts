/** `muster ca`: the root certificate that every node of the cluster trusts. */
import { command, type Command } from "./command.ts";
import { cluster, withManager } from "./manager-client.ts";

export const ca: Command = command({
  summary: "Display the cluster's root certificate (PEM).",
  options: {
    digest: {
      type: "boolean",
      help: "Print the SHA-256 digest of the certificate, for 'muster context create --ca-digest'",
    },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const { rootCa } = await cluster(client);
      if (values.digest === true) {
        const { rootDigest } = await import("./remote/connect.ts");
        return shell.print(rootDigest(rootCa?.caCert ?? new Uint8Array()));
      }
      shell.print(new TextDecoder().decode(rootCa?.caCert).trimEnd());
    }),
});
