/**
 * A container's output, from what the engine keeps of it to where the host wants it. How far that has come is noted on the disk,
 * so that the driver's next process goes on from there.
 *
 * L1: a host that does not read holds up this container's output, and nothing else.
 * L2: after the driver was killed, what was handed over since the last note (`noteMs`) comes a second time; nothing is lost that
 *     the engine still has.
 */
import { createWriteStream, closeSync, fstatSync, readFileSync, rmSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import type { Writable } from "node:stream";
import type { TaskConfig } from "../../proto/gen/nomad.ts";
import type { Logger } from "../../runtime/ports.ts";
import { replaceFileSync } from "../../runtime/system/whole-file.ts";
import { openOutput } from "../../node/output/output-files.ts";
import { EngineError, type Engine } from "./engine.ts";
import { Frames, Lines, type OutputName } from "./frames.ts";

const noteMs = 200;
/** Before the engine is asked again after its stream broke off. */
const retryMs = 1_000;
/** After the container's end, for the rest of its output. */
const drainMsMax = 2_000;

interface Target {
  readonly stream: Writable;
  close(): void;
}

function openTarget(path: string): Target | null {
  const file = openOutput(path);
  if (file === null) return null;
  const { keep, write } = file;
  // Through a socket, a pipe that is full costs none of the threads that all files of the process share.
  const stream = fstatSync(write).isFIFO()
    ? new Socket({ fd: write, readable: false, writable: true })
    : createWriteStream("", { fd: write });
  stream.on("error", () => {}); // its reader is gone for good: the container goes on
  return {
    stream,
    close: () => {
      stream.once("close", () => {
        if (keep !== null) closeSync(keep);
      });
      // What nobody reads is not waited for.
      if (stream.writableNeedDrain) stream.destroy();
      else stream.end();
    },
  };
}

/** Log drivers that hand the output on to somewhere else keep nothing. */
function isUnreadable(error: unknown): boolean {
  return error instanceof EngineError && error.status >= 500 && /does not support reading/.test(error.message);
}

/** A time as the engine writes it, as the seconds that it is asked by. */
function secondsOf(time: string): string {
  const [, whole = "", nanos = ""] = /^(.*)\.(\d{9})Z$/.exec(time) ?? [];
  return whole === "" ? "0" : `${Math.floor(Date.parse(`${whole}Z`) / 1_000)}.${nanos}`;
}

export interface LogOptions {
  readonly engine: Engine;
  readonly containerId: string;
  readonly task: TaskConfig;
  /** The container has a terminal. */
  readonly hasTerminal: boolean;
  /** Absolute; where the note is. */
  readonly noteFile: string;
  readonly log: Logger;
}

export class ContainerLogs {
  readonly #options: LogOptions;
  readonly #targets: Readonly<Record<OutputName, Target | null>>;
  readonly #ended = Promise.withResolvers<void>();
  /** The engine's time of the last line that was handed over. */
  #last: string;
  #noted: NodeJS.Timeout | null = null;
  #answer: IncomingMessage | null = null;
  #isClosed = false;

  /** Throws where the host's pipes are not there. */
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
        break; // the container has ended
      } catch (error) {
        if (this.#isClosed) break;
        if (isUnreadable(error)) {
          log.info({ container: containerId, reason: (error as Error).message }, "a container's output cannot be read");
          break;
        }
        log.debug({ error, container: containerId }, "a container's output broke off");
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
      // The engine gives once more what has the very time that it was asked for; the pieces of one long line share a time.
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
      log.debug({ error }, "cannot note how far a container's output was read");
    }
  }

  /** After the container has ended: resolves when its output was handed over, or nobody takes it. */
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
