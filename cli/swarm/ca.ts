/** `muster swarm ca [--rotate …]`: prints or replaces the root certificate that every node trusts. */
import { CAConfig, ClusterSpec, type Cluster } from "../../proto/gen/messages.ts";
import { updateCluster } from "../cluster-update.ts";
import { command, type Command } from "../command.ts";
import { cluster, listNodes, withManager, type ManagerClient } from "../manager-client.ts";
import { rotationLines, rotationProgress } from "../root-rotation.ts";
import { redrawn } from "../service/bars.ts";
import type { Shell } from "../shell.ts";
import { caSettingOptions, readPem, withCaSettings } from "./settings.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";

/** Polling interval, in milliseconds; Docker's client uses the same. */
const pollMs = 200;
/** Width of a terminal that does not report one. */
const columnsDefault = 80;
/**
 * After this time without progress, in milliseconds, the nodes that have not renewed are listed: a bit more than three rounds
 * of 3 s.
 */
const silenceMs = 10_000;

export const ca: Command = command({
  summary: "Display the cluster's root certificate (PEM), or replace it with --rotate while everything keeps running.",
  options: {
    rotate: { type: "boolean", help: "Rotate the root certificate: generate a new one, or use the one given" },
    "ca-cert": { type: "string", value: "FILE", help: "Certificate (PEM) of the root to rotate to" },
    "ca-key": { type: "string", value: "FILE", help: "Private key (PEM) of the root to rotate to" },
    ...caSettingOptions,
    detach: { type: "boolean", short: "d", help: "Exit immediately instead of waiting for the rotation to converge" },
    quiet: { type: "boolean", short: "q", help: "Suppress progress output" },
  },
  run: async ({ values, shell }) => {
    const { "ca-cert": certFile, "ca-key": keyFile, "external-ca": externals, rotate } = values;
    if (rotate !== true) {
      for (const flag of ["ca-cert", "ca-key", "cert-expiry", "external-ca"] as const) {
        if (values[flag] !== undefined)
          throw new UsageError(`\`--${flag}\` flag requires the \`--rotate\` flag to update the CA`);
      }
      return withManager(shell, async (client) => printRoot(shell, await cluster(client)));
    }
    if (externals !== undefined && certFile === undefined) {
      throw new UsageError(
        "rotating to an external CA requires the `--ca-cert` flag to specify the external CA's cert - " +
          "to add an external CA with the current root CA certificate, use the `update` command instead",
      );
    }
    if (certFile !== undefined && keyFile === undefined && externals === undefined) {
      throw new UsageError(
        "the --ca-cert flag requires that a --ca-key flag and/or --external-ca flag be provided as well",
      );
    }
    const complaint = "file contents must be in PEM format";
    const cert = certFile === undefined ? null : readPem(certFile, complaint);
    const key = keyFile === undefined ? null : readPem(keyFile, complaint);
    await withManager(shell, async (client) => {
      await updateCluster(client, {
        spec: (spec) => rotating(withCaSettings(spec, values, cert), cert, key),
      });
      if (values.detach === true) return;
      await follow(client, shell, values.quiet === true);
      if (values.quiet !== true) printRoot(shell, await cluster(client));
    });
  },
});

/** Without a given root, a higher counter requests a new one. */
function rotating(spec: ClusterSpec, cert: Uint8Array | null, key: Uint8Array | null): ClusterSpec {
  const before = spec.caConfig ?? CAConfig.create({});
  return ClusterSpec.patch(spec, {
    caConfig: CAConfig.patch(before, {
      signingCaCert: cert ?? new Uint8Array(),
      signingCaKey: key ?? new Uint8Array(),
      ...(cert === null && key === null ? { forceRotate: before.forceRotate + 1 } : {}),
    }),
  });
}

function printRoot(shell: Shell, { rootCa }: Cluster): void {
  const text = new TextDecoder().decode(rootCa?.caCert).trim();
  if (text === "") throw new UserError("No CA information available");
  shell.print(text);
}

async function follow(client: ManagerClient, shell: Shell, isQuiet: boolean): Promise<void> {
  let drawn = 0;
  let shown = "";
  let movedAt = shell.now();
  let hasNamedNodes = false;
  for (;;) {
    const progress = rotationProgress(await cluster(client), await listNodes(client));
    const lines = rotationLines(progress);
    const text = lines.join("\n");
    if (text !== shown) {
      movedAt = shell.now();
      hasNamedNodes = false;
    }
    const { waitsFor } = progress;
    const isStill = shell.now() - movedAt > silenceMs && waitsFor !== "";
    if (!isQuiet && shell.isInteractive) {
      const all = isStill ? [...lines, `  waiting for ${waitsFor}: start these nodes, or remove them`] : lines;
      process.stderr.write(redrawn(drawn, all, process.stderr.columns || columnsDefault));
      drawn = all.length;
    } else if (!isQuiet && text !== shown) shell.remark(text);
    else if (!isQuiet && isStill && !hasNamedNodes)
      shell.remark(`waiting for ${waitsFor}: start these nodes, or remove them`);
    hasNamedNodes ||= isStill;
    shown = text;
    if (progress.isDone) return;
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}
