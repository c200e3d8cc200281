/**
 * A dataplane driver as a child process, from main's side: fd 3 carries messages to it, fd 4 messages from it
 * (docs/reference/felix-dataplane-protocol.md §1, §9.2).
 *
 * L1: at most the pipe's content and one message wait for a driver that does not read; the rest waits elsewhere, merged.
 * L2: a driver's output costs bounded memory: messages have a size limit, and log lines are truncated.
 */
import { spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { createInterface } from "node:readline";
import { FromDataplane, ToDataplane } from "../../proto/gen/felix.ts";
import type { DataplaneLauncher, DataplaneListener, DataplaneProcess } from "../../runtime/ports/dataplane.ts";
import type { Logger } from "../../runtime/ports/index.ts";
import { FrameReader, frameOf } from "./frames.ts";

interface DriverCommand {
  /** The name that operators see. */
  readonly name: string;
  /** Path of the executable, which gets no arguments (as under Felix). */
  readonly path: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Logger;
}

/** A status takes some hundred bytes. L2 */
const messageBytesMax = 1024 * 1024;
const lineCharactersMax = 2_000;
/** How long to wait for a driver's exit after its pipe has closed, in milliseconds. */
const exitAwaitedMs = 500;

export function dataplaneLauncher(command: DriverCommand): DataplaneLauncher {
  return { launch: (listener) => new DriverProcess(command, listener) };
}

class DriverProcess implements DataplaneProcess {
  readonly pid: number;
  readonly #child: ReturnType<typeof spawn>;
  readonly #input: Writable;
  readonly #listener: DataplaneListener;
  #sequence = 0;
  #isBroken = false;
  #isGone = false;
  #kill: NodeJS.Timeout | null = null;
  #closing: NodeJS.Timeout | null = null;

  constructor({ name, path, env, log }: DriverCommand, listener: DataplaneListener) {
    this.#listener = listener;
    const child = spawn(path, [], { env, stdio: ["ignore", "pipe", "pipe", "pipe", "pipe"] });
    this.#child = child;
    this.pid = child.pid ?? 0;
    for (const stream of [child.stdout, child.stderr] as readonly Readable[])
      createInterface({ input: stream }).on("line", (line) => {
        log.info({ driver: name, line: line.slice(0, lineCharactersMax) }, "output of a dataplane driver");
      });
    this.#input = child.stdio[3] as Writable;
    this.#input.on("error", (error) => this.#suspect(`cannot write to it: ${error.message}`));
    this.#input.on("drain", () => {
      if (!this.#isGone) listener.onWritable();
    });
    const output = child.stdio[4] as Readable;
    const frames = new FrameReader(messageBytesMax);
    output.on("data", (chunk: Buffer) => this.#read(frames, chunk));
    output.on("error", (error) => this.#suspect(`cannot read from it: ${error.message}`));
    output.on("end", () =>
      this.#suspect(frames.isBetween ? "it closed its pipe" : "it closed its pipe inside a frame"),
    );
    child.on("error", (error) => this.#exit(`cannot start it: ${error.message}`));
    child.on("exit", (code, signal) =>
      this.#exit(signal === null ? `exit code ${code ?? "unknown"}` : `signal ${signal}`),
    );
  }

  send(fields: Partial<ToDataplane>): boolean {
    if (this.#isGone || this.#isBroken) return true;
    const message = ToDataplane.create({ ...fields, sequenceNumber: this.#sequence++ });
    return this.#input.write(frameOf(ToDataplane.encode(message)));
  }

  end(graceMs: number): void {
    if (this.#isGone || this.#kill !== null) return;
    this.#child.kill("SIGTERM");
    this.#kill = setTimeout(() => this.#child.kill("SIGKILL"), graceMs);
  }

  #read(frames: FrameReader, chunk: Buffer): void {
    if (this.#isBroken || this.#isGone) return;
    try {
      for (const body of frames.push(chunk)) this.#listener.onMessage(FromDataplane.decode(body));
    } catch (error) {
      this.#break(`cannot read its messages: ${error instanceof Error ? error.message : "invalid frame"}`);
    }
  }

  /** The driver has probably exited: wait for its exit status, which says more and usually follows within moments. */
  #suspect(reason: string): void {
    this.#closing ??= setTimeout(() => this.#break(reason), exitAwaitedMs);
  }

  #break(reason: string): void {
    if (this.#isBroken || this.#isGone) return;
    this.#isBroken = true;
    this.#listener.onBroken(reason);
  }

  #exit(how: string): void {
    if (this.#isGone) return;
    this.#isGone = true;
    for (const timer of [this.#kill, this.#closing]) if (timer !== null) clearTimeout(timer);
    // A pipe that a child of the driver still holds open must not keep this process waiting.
    this.#input.destroy();
    this.#listener.onExit(how);
  }
}
