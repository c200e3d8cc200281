/** `muster replay`: the web interface over a recording, without a cluster. */
import type { UiSession } from "../edges/ui/backend.ts";
import { version } from "../lib/version.ts";
import { UiHello } from "../proto/gen/messages.ts";
import { command, type Command } from "./command.ts";
import { openFile } from "./replay/open.ts";
import { recordedBackend } from "./replay/recorded-backend.ts";
import { printVerification } from "./replay/print-verification.ts";
import { describeRecording, lineText } from "./replay/summary.ts";
import { pageFlags, servePage } from "./serve/page.ts";

export const replay: Command = command({
  operands: "FILE",
  min: 1,
  max: 1,
  summary:
    "Serve the web interface for a recording made by 'muster record', on this machine and without a cluster, until interrupted.",
  options: {
    ...pageFlags,
    verify: {
      type: "boolean",
      help: "Instead of the page: take every recorded step again with this Muster's charts, and name the first that they decide differently",
    },
    logs: {
      type: "boolean",
      help: "Instead of the page: print the recorded log lines of all processes, in order of time",
    },
    force: { type: "boolean", help: "Open a recording that is truncated, damaged or changed as far as it can be read" },
  },
  async run({ values, operands, shell }) {
    const [path = ""] = operands;
    const recording = await openFile(path, values.force === true);
    for (const line of describeRecording(recording)) shell.remark(line);
    if (values.logs === true) return recording.lines.forEach((line) => shell.print(lineText(line)));
    if (values.verify === true) return printVerification(shell, recording.index);
    const backend = recordedBackend(recording);
    // Nobody can change a recording.
    const hello = UiHello.create({ version, role: "read-only", cluster: recording.head.clusterId, isRecording: true });
    const open = (): Promise<UiSession> => Promise.resolve({ hello, backend });
    await servePage(shell, values, { command: "muster replay", open });
  },
});
