/** `muster backup`: everything that the cluster's log says, in one encrypted file for `muster restore`. */
import { UsageError, UserError } from "../lib/user-error.ts";
import { BackupPart, BackupService, TakeBackupRequest } from "../proto/gen/messages.ts";
import { backupFile, openBackup } from "../runtime/backup/format.ts";
import type { RpcChannel } from "../runtime/ports/rpc.ts";
import { cannotOpen, describeBackup, fileReader } from "./backup/open.ts";
import { identityFlag, openingOf, passphraseFlag, recipientFlag, wrappingOf } from "./backup/keys.ts";
import { command, type Command } from "./command.ts";
import type { Shell } from "./shell.ts";
import { streamed } from "./streamed.ts";
import { writeWhole } from "./write-whole.ts";

export const backup: Command = command({
  max: 0,
  summary:
    "Write everything that a new manager needs to found the cluster again, with all secrets, to one encrypted file, while the cluster runs.",
  options: {
    output: { type: "string", short: "o", value: "FILE", help: "File to write (default muster-TIME.backup)" },
    ...passphraseFlag,
    ...recipientFlag,
    history: { type: "boolean", help: "Include the history, for --at and 'muster history' after a restore" },
    verify: {
      type: "string",
      value: "FILE",
      help: "Read a backup to its end, check that it is whole and unchanged, and show what is in it",
      completes: "file",
    },
    ...identityFlag,
  },
  async run({ values, shell }) {
    const { history = false, output, recipient, verify } = values;
    if (verify !== undefined) {
      if (output !== undefined || recipient !== undefined || history)
        throw new UsageError("--verify only reads: it takes --passphrase-file or --identity");
      return show(verify, await openingOf(values), shell);
    }
    if (values.identity !== undefined) throw new UsageError("--identity requires --verify");
    const wrapping = await wrappingOf(values);
    const path = output ?? `muster-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.backup`;
    const channel = await shell.connect();
    try {
      const taken = { clusterId: "", version: 0, missing: [] as readonly string[] };
      const parts = partsOf(channel, TakeBackupRequest.create({ history }), taken);
      const bytes = await writeWhole(path, backupFile(parts, wrapping), "backup");
      const size = Math.ceil(bytes / 1024).toLocaleString("en");
      shell.print(`${path}: ${size} KiB, cluster ${taken.clusterId} at version ${taken.version}`);
      for (const each of taken.missing) shell.remark(`missing: ${each}`);
    } finally {
      channel.close();
    }
  },
});

/** Encoded. Rejects with RpcError, and UserError when the manager ends before the end of the backup. */
async function* partsOf(
  channel: RpcChannel,
  request: TakeBackupRequest,
  taken: { clusterId: string; version: number; missing: readonly string[] },
): AsyncGenerator<Uint8Array> {
  let isWhole = false;
  for await (const part of streamed(channel, BackupService.methods.Take, request)) {
    if (part.head !== null) Object.assign(taken, { clusterId: part.head.clusterId, version: part.head.last });
    if (part.end !== null) taken.missing = part.end.missing;
    isWhole = part.end !== null;
    yield BackupPart.encode(part);
  }
  if (!isWhole) throw new UserError("the manager ended the backup before it was complete: try again");
}

async function show(path: string, opening: Parameters<typeof openBackup>[1], shell: Shell): Promise<void> {
  const read = fileReader(path);
  const opened = await openBackup(read(), opening).catch((error: unknown) => {
    throw cannotOpen(path, error);
  });
  for (const line of describeBackup(opened)) shell.print(line);
}
