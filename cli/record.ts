/** `muster record`: the last minutes of the cluster's processes as one file, for `muster replay`. */
import { UserError } from "../lib/user-error.ts";
import { ActorSelection, InspectionService, RecentActorsRequest, RecordingPart } from "../proto/gen/messages.ts";
import type { RpcChannel } from "../runtime/ports/rpc.ts";
import { partOverheadBytes, recordingBytesMax, recordingFile } from "../runtime/recording/format.ts";
import { openRecording } from "../runtime/recording/opened.ts";
import { command, type Command } from "./command.ts";
import { describeRecording } from "./replay/summary.ts";
import { streamed } from "./streamed.ts";
import { parsePositiveDuration } from "./values.ts";
import { writeWhole } from "./write-whole.ts";

export const record: Command = command({
  max: 0,
  summary:
    "Write what the processes of the cluster did in their last minutes, and the cluster's objects in that time, to one compressed file, without secrets, for 'muster replay'.",
  options: {
    since: {
      type: "string",
      value: "DURATION",
      help: "Nothing older than this, such as 10m (default: everything that processes keep)",
    },
    output: { type: "string", short: "o", value: "FILE", help: "File to write (default muster-TIME.mrec)" },
    process: {
      type: "string",
      multiple: true,
      value: "PROCESS",
      help: "Only this process, such as manager-ID or node-ID (default: every manager, and every agent that can be reached)",
    },
  },
  async run({ values, shell }) {
    const path = values.output ?? `muster-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.mrec`;
    const sinceMs = values.since === undefined ? 0 : millisecondsOf(values.since);
    const channel = await shell.connect();
    try {
      const selection = ActorSelection.create({ processes: values.process ?? [] });
      const file = await fileOf(channel, RecentActorsRequest.create({ selection, sinceMs }));
      await writeWhole(path, file, "recording");
      shell.print(`${path}: ${Math.ceil(file.length / 1024).toLocaleString("en")} KiB`);
      for (const line of describeRecording(await openRecording(once(file), { isForced: false }))) shell.print(line);
    } finally {
      channel.close();
    }
  },
});

function millisecondsOf(text: string): number {
  const { nanos, seconds } = parsePositiveDuration(text, "since");
  return Math.ceil(seconds * 1_000 + nanos / 1e6);
}

async function* once(file: Uint8Array): AsyncGenerator<Uint8Array> {
  yield file;
}

/** In memory: the compressed recording, some megabytes for each process. */
async function fileOf(channel: RpcChannel, request: RecentActorsRequest): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of recordingFile(partsOf(channel, request))) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Encoded, as the manager sends them. Rejects with RpcError, and UserError for a recording that nobody could open. */
async function* partsOf(channel: RpcChannel, request: RecentActorsRequest): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const message of streamed(channel, InspectionService.methods.Record, request)) {
    const part = RecordingPart.encode(message);
    bytes += part.length + 4 + partOverheadBytes;
    if (bytes > recordingBytesMax)
      throw new UserError(
        `the recording exceeds ${recordingBytesMax / 2 ** 20} MiB: use a shorter --since, or choose processes with --process`,
      );
    yield part;
  }
}
