/**
 * A dataplane driver as a child process, from main's side: fd 3 to it, fd 4 from it
 * (docs/reference/felix-dataplane-protocol.md §1, §9.2).
 *
 * L1: what waits for a driver that does not read is the pipe's content and one message; the rest waits merged, elsewhere.
 * L2: what a driver writes costs bounded memory: its messages have a limit, its lines are cut.
 */
import { spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { createInterface } from "node:readline";
import { FromDataplane, ToDataplane } from "../../proto/gen/felix.ts";
import type { DataplaneLauncher, DataplaneListener, DataplaneProcess } from "../../runtime/dataplane.ts";
import type { Logger } from "../../runtime/ports.ts";
import { FrameReader, frameOf } from "./frames.ts";

export interface DriverCommand {
  /** As operators name it. */
  readonly name: string;
  /** Executable; it gets no arguments, as under Felix. */
  readonly path: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Logger;
}

/** A status has some hundred bytes. L2 */
const messageBytesMax = 1024 * 1024;
const lineCharactersMax = 2_000;
/** Between the end of a driver's pipe and the news of its exit. */
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
        log.info({ driver: name, line: line.slice(0, lineCharactersMax) }, "a dataplane driver says");
      });
    this.#input = child.stdio[3] as Writable;
    this.#input.on("error", (error) => this.#suspect(`it takes nothing: ${error.message}`));
    this.#input.on("drain", () => {
      if (!this.#isGone) listener.onWritable();
    });
    const output = child.stdio[4] as Readable;
    const frames = new FrameReader(messageBytesMax);
    output.on("data", (chunk: Buffer) => this.#read(frames, chunk));
    output.on("error", (error) => this.#suspect(`it cannot be heard: ${error.message}`));
    output.on("end", () =>
      this.#suspect(frames.isBetween ? "it closed its pipe" : "it closed its pipe inside a frame"),
    );
    child.on("error", (error) => this.#exit(`it cannot be started: ${error.message}`));
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
      this.#break(`it cannot be understood: ${error instanceof Error ? error.message : "no frame"}`);
    }
  }

  /** Mostly this is its exit, which says more and is a moment away. */
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
    // What a child of the driver holds open must not keep us waiting.
    this.#input.destroy();
    this.#listener.onExit(how);
  }
}
