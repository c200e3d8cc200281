/**
 * Copies a container's output from the engine's log to where the host wants it. The position is recorded on disk, so that the
 * driver's next process continues from there.
 *
 * L1: a host that does not read delays this container's output, and nothing else.
 * L2: if the driver is killed, output passed on since the last record (`noteMs`) is repeated; none is lost that the engine
 *     still has.
 */
import { createWriteStream, closeSync, fstatSync, readFileSync, rmSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import type { Writable } from "node:stream";
import type { TaskConfig } from "../../proto/gen/nomad.ts";
import type { Logger } from "../../runtime/ports/index.ts";
import { replaceFileSync } from "../../runtime/system/whole-file.ts";
import { openOutput } from "../../linux/output/output-files.ts";
import { EngineError, type Engine } from "./engine.ts";
import { Frames, Lines, type OutputName } from "./frames.ts";

const noteMs = 200;
/** Delay before a broken stream is requested again, in milliseconds. */
const retryMs = 1_000;
/** Time for the rest of the output after the container has exited, in milliseconds. */
const drainMsMax = 2_000;

interface Target {
  readonly stream: Writable;
  close(): void;
}

function openTarget(path: string): Target | null {
  const file = openOutput(path);
  if (file === null) return null;
  const { keep, write } = file;
  // As a socket, a full pipe does not block one of the threads that all files of the process share.
  const stream = fstatSync(write).isFIFO()
    ? new Socket({ fd: write, readable: false, writable: true })
    : createWriteStream("", { fd: write });
  stream.on("error", () => {}); // the reader has closed it: the container continues
  return {
    stream,
    close: () => {
      stream.once("close", () => {
        if (keep !== null) closeSync(keep);
      });
      // Output that nobody reads is not waited for.
      if (stream.writableNeedDrain) stream.destroy();
      else stream.end();
    },
  };
}

/** Log drivers that send the output elsewhere keep none of it. */
function isUnreadable(error: unknown): boolean {
  return error instanceof EngineError && error.status >= 500 && /does not support reading/.test(error.message);
}

/** An engine's timestamp as the seconds that its API takes. */
function secondsOf(time: string): string {
  const [, whole = "", nanos = ""] = /^(.*)\.(\d{9})Z$/.exec(time) ?? [];
  return whole === "" ? "0" : `${Math.floor(Date.parse(`${whole}Z`) / 1_000)}.${nanos}`;
}

interface LogOptions {
  readonly engine: Engine;
  readonly containerId: string;
  readonly task: TaskConfig;
  /** The container has a terminal. */
  readonly hasTerminal: boolean;
  /** Absolute path of the record. */
  readonly noteFile: string;
  readonly log: Logger;
}

export class ContainerLogs {
  readonly #options: LogOptions;
  readonly #targets: Readonly<Record<OutputName, Target | null>>;
  readonly #ended = Promise.withResolvers<void>();
  /** The engine's timestamp of the last line passed on. */
  #last: string;
  #noted: NodeJS.Timeout | null = null;
  #answer: IncomingMessage | null = null;
  #isClosed = false;

  /** Throws if the host's pipes do not exist. */
  constructor(options: LogOptions) {
    this.#options = options;
    const stdout = openTarget(options.task.stdoutPath);
    try {
      this.#targets = { stdout, stderr: openTarget(options.task.stderrPath) };
    } catch (error) {
      stdout?.close();
      throw error;
    }
    this.#last = readNote(options.noteFile);
    void this.#run();
  }

  async #run(): Promise<void> {
    const { containerId, engine, log } = this.#options;
    for (;;) {
      if (this.#isClosed) break;
      try {
        const since = this.#last === "" ? {} : { since: secondsOf(this.#last) };
        const query = { follow: true, stdout: true, stderr: true, timestamps: true, ...since };
        const answer = await engine.stream("GET", `/containers/${containerId}/logs`, { query, timeoutMs: null });
        this.#answer = answer;
        await this.#relay(answer);
        break; // the container has exited
      } catch (error) {
        if (this.#isClosed) break;
        if (isUnreadable(error)) {
          log.info({ container: containerId, reason: (error as Error).message }, "a container's output cannot be read");
          break;
        }
        log.debug({ error, container: containerId }, "a container's output was interrupted");
        await new Promise((resolve) => setTimeout(resolve, retryMs));
      }
    }
    this.#note();
    this.#ended.resolve();
  }

  async #relay(answer: IncomingMessage): Promise<void> {
    const full = new Set<Writable>();
    const from = this.#last;
    const take = (name: OutputName, bytes: Buffer): void => {
      const space = bytes.indexOf(32);
      const time = bytes.toString("latin1", 0, space);
      // The engine repeats lines with exactly the requested time; the pieces of one long line share a time.
      if (time <= from) return;
      this.#last = time;
      const stream = this.#targets[name]?.stream;
      if (stream !== undefined && !stream.write(Buffer.from(bytes.subarray(space + 1)))) full.add(stream);
    };
    const frames = this.#options.hasTerminal ? new Lines(take) : new Frames(true, take);
    for await (const chunk of answer) {
      frames.push(chunk as Buffer);
      this.#noted ??= setTimeout(() => this.#note(), noteMs);
      // L1
      for (const stream of full) await drained(stream);
      full.clear();
    }
  }

  #note(): void {
    if (this.#noted !== null) clearTimeout(this.#noted);
    this.#noted = null;
    const { noteFile, log } = this.#options;
    if (this.#last === "" || this.#isClosed) return;
    try {
      replaceFileSync(noteFile, this.#last);
    } catch (error) {
      log.debug({ error }, "cannot record the position in a container's output");
    }
  }

  /** After the container has exited: resolves when its output was passed on, or nobody reads it. */
  async finish(): Promise<void> {
    const late = Promise.withResolvers<void>();
    const timer = setTimeout(late.resolve, drainMsMax);
    await Promise.race([this.#ended.promise, late.promise]);
    clearTimeout(timer);
    this.#note();
    this.#isClosed = true;
    this.#answer?.destroy();
    for (const target of Object.values(this.#targets)) target?.close();
  }
}

function drained(stream: Writable): Promise<void> {
  return new Promise((resolve) => {
    if (!stream.writableNeedDrain || stream.destroyed) return resolve();
    const settle = (): void => {
      stream.off("drain", settle);
      stream.off("close", settle);
      resolve();
    };
    stream.on("drain", settle);
    stream.on("close", settle);
  });
}

function readNote(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

export function forgetNote(path: string): void {
  rmSync(path, { force: true });
}
