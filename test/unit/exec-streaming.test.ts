// The driver's side of a command with a terminal: its size over time.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { openSession } from "../../drivers/exec/session.ts";
import { execTaskStreaming } from "../../edges/plugin/server/exec.ts";
import type { ExecRequest, RunningTask, TerminalSize } from "../../edges/plugin/server/index.ts";
import {
  ExecTaskStreamingRequest,
  ExecTaskStreamingRequest_Setup,
  ExecTaskStreamingRequest_TerminalSize,
} from "../../proto/gen/nomad.ts";
import { findTools } from "../../linux/system-tools.ts";
import { call } from "../support/manager.ts";

const setup = ExecTaskStreamingRequest_Setup.create({ taskId: "t1", command: ["sh"], tty: true });
const sized = (height: number, width: number) => ExecTaskStreamingRequest_TerminalSize.create({ height, width });

/** The size that a command started with, and its later sizes. */
async function sizes(...messages: readonly Partial<ExecTaskStreamingRequest>[]) {
  let first: TerminalSize | null = null;
  const later: TerminalSize[] = [];
  const over = Promise.withResolvers<{ exitCode: number; signal: number; oomKilled: boolean }>();
  const task = {
    exec: (request: ExecRequest) => {
      first = request.terminal;
      return {
        exited: over.promise,
        write: () => {},
        closeInput: () => over.resolve({ exitCode: 0, signal: 0, oomKilled: false }),
        resize: (size: TerminalSize) => void later.push(size),
        kill: () => {},
      };
    },
  } as unknown as RunningTask;
  async function* requests() {
    for (const message of messages) yield ExecTaskStreamingRequest.create(message);
  }
  const sink = { write: () => {}, end: () => {}, bufferedBytes: () => 0 };
  await execTaskStreaming(() => task, requests(), sink, call());
  return { first, later };
}

test("a size in the first message is set before the command starts, and is not set again", async (t) => {
  const ttySize = sized(31, 77);
  t.deepEqual(await sizes({ setup, ttySize }, { ttySize }, { ttySize: sized(40, 132) }), {
    first: { rows: 31, columns: 77 },
    later: [{ rows: 40, columns: 132 }],
  });
});

test("without a size a terminal starts with 24 rows of 80 columns, and accepts changes", async (t) => {
  t.deepEqual(await sizes({ setup }, { ttySize: sized(24, 80) }), {
    first: { rows: 24, columns: 80 },
    later: [{ rows: 24, columns: 80 }],
  });
});

test("a size requested before the terminal has its first one is the size that it keeps", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-terminal-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const tools = findTools(process.env["PATH"] ?? "");
  // A machine that sets the first size late: without -F, the size is that of the command's own terminal.
  const stty = join(folder, "stty");
  writeFileSync(stty, `#!/bin/sh\n[ "$1" = -F ] || sleep 0.5\nexec ${tools.stty} "$@"\n`);
  chmodSync(stty, 0o755);
  let text = "";
  const session = openSession(
    [],
    { prefix: [], env: { PATH: process.env["PATH"] ?? "" }, directory: "/" },
    {
      // The command starts after the first size; the other may still be on its way.
      command: [
        "/bin/sh",
        "-c",
        "for n in $(seq 100); do [ \"$(stty size)\" = '100 132' ] && exit 7; sleep 0.1; done; stty size",
      ],
      terminal: { rows: 24, columns: 80 },
      output: (_stream, bytes) => {
        text += Buffer.from(bytes).toString("utf8");
        return true;
      },
      onDrain: () => {},
    },
    { ...tools, stty },
  );
  session.resize({ rows: 100, columns: 132 });
  const { exitCode } = await session.exited;
  t.is(exitCode, 7, text);
});
