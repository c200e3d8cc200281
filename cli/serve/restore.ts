/** `muster restore`. */
import { NatsProblem } from "../../runtime/nats/errors.ts";
import { NatsServerProblem } from "../../runtime/nats/server.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { restoreCluster } from "../../processes/restore.ts";
import { telemetryFor } from "../../processes/telemetry.ts";
import { cannotOpen, describeBackup, fileReader } from "../backup/open.ts";
import { identityFlag, openingOf, passphraseFlag } from "../backup/keys.ts";
import { command, type Command } from "../command.ts";
import { logging } from "./serving-flags.ts";

export const restore: Command = command({
  operands: "FILE",
  min: 1,
  max: 1,
  summary:
    "Found the cluster of a backup again: make the data dir of a new manager from it. Nodes come back with their certificates, and their tasks go on.",
  options: {
    "data-dir": { type: "string", value: "DIR", help: "Data directory to create, for 'muster manager'" },
    ...passphraseFlag,
    ...identityFlag,
    ...logging,
  },
  completes: ["file"],
  async run({ operands: [path = ""], values, shell }) {
    const { "data-dir": dataDir } = values;
    if (dataDir === undefined) throw new UsageError("--data-dir is required: the new manager's state goes there");
    const opening = await openingOf(values);
    const telemetry = await telemetryFor("muster-restore", values["log-level"] ?? "error");
    try {
      const restored = await restoreCluster({ read: fileReader(path), opening, dataDir, telemetry });
      for (const line of describeBackup(restored.backup)) shell.print(line);
      shell.print(`Restored to ${dataDir}; the cluster continues at version ${restored.version}.`);
      shell.print(`Start its manager: muster manager --data-dir ${dataDir} --listen ADDR:PORT`);
    } catch (error) {
      if (error instanceof NatsProblem || error instanceof NatsServerProblem)
        throw new UserError(error.message, { cause: error });
      const { code, syscall } = error as NodeJS.ErrnoException;
      if (code === "ENOSPC" && syscall !== undefined)
        throw new UserError(`cannot restore to ${dataDir}: its disk is full; nothing was left there`, { cause: error });
      throw cannotOpen(path, error);
    } finally {
      await telemetry.shutdown();
    }
  },
});
