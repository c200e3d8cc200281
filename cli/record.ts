/** `muster record`: the last minutes of the cluster's processes as one file, for `muster replay`. */
import { statfsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { UserError } from "../lib/user-error.ts";
import { ActorSelection, InspectionService, RecentActorsRequest, RecordingPart } from "../proto/gen/messages.ts";
import type { RpcChannel } from "../runtime/ports/rpc.ts";
import { partOverheadBytes, recordingBytesMax, recordingFile } from "../runtime/recording/format.ts";
import { openRecording } from "../runtime/recording/opened.ts";
import { replaceFile } from "../runtime/system/whole-file.ts";
import { command, type Command } from "./command.ts";
import { describeRecording } from "./replay/summary.ts";
import { parsePositiveDuration } from "./values.ts";

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
      await written(path, file);
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

/** Parts that wait to be compressed: the manager is paused beyond. */
const queuedMax = 64;

/** Encoded, as the manager sends them. Rejects with RpcError, and UserError for a recording that nobody could open. */
async function* partsOf(channel: RpcChannel, request: RecentActorsRequest): AsyncGenerator<Uint8Array> {
  const queue: Uint8Array[] = [];
  let failed: Error | null = null;
  let isOver = false;
  let isPaused = false;
  let wake = (): void => undefined;
  const call = channel.serverStream(InspectionService.methods.Record, request, {
    onMessage(part) {
      queue.push(RecordingPart.encode(part));
      if (queue.length >= queuedMax && !isPaused) {
        isPaused = true;
        call.pause();
      }
      wake();
    },
    onEnd(error) {
      failed = error;
      isOver = true;
      wake();
    },
  });
  let bytes = 0;
  for (;;) {
    const part = queue.shift();
    if (part !== undefined) {
      bytes += part.length + 4 + partOverheadBytes;
      if (bytes > recordingBytesMax) {
        call.cancel();
        throw new UserError(
          `the recording exceeds ${recordingBytesMax / 2 ** 20} MiB: use a shorter --since, or choose processes with --process`,
        );
      }
      yield part;
      if (isPaused && queue.length < queuedMax / 2) {
        isPaused = false;
        call.resume();
      }
    } else if (failed !== null) throw failed;
    else if (isOver) return;
    else await new Promise<void>((resolve) => (wake = resolve));
  }
}

/** All or nothing. Rejects with UserError. */
async function written(path: string, file: Uint8Array): Promise<void> {
  try {
    await replaceFile(path, file);
  } catch (error) {
    const { code = "", message } = error as NodeJS.ErrnoException;
    throw new UserError(`cannot write ${path}: ${code === "ENOSPC" ? fullDisk(path, file.length) : message}`, {
      cause: error,
    });
  }
}

function fullDisk(path: string, needed: number): string {
  const { bavail, bsize } = statfsSync(dirname(resolve(path)));
  const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);
  return `the disk is full: the recording has ${mib(needed)} MiB, ${mib(bavail * bsize)} MiB are free; choose another file with -o`;
}
