/**
 * Reads what tasks write to their pipes, and stores it in files: one process for all tasks of an agent, so that neither an
 * exiting nor a busy agent blocks a task's writes.
 *
 *   opened ──(drain)──▶ draining ──(the last writer has closed, or the timeout)──▶ closed
 *
 * OC1: memory is one buffer for all pipes together, however fast they are written to: each read is written to a file, or
 *      dropped, before the next one.
 * OC2: a file that has reached its limit becomes `<name>.1`, replacing the previous one (O1 of the files' reader: it is copied
 *      and emptied; since the writer itself does it here, nothing is lost in between).
 * OC3: a full disk loses output; it never blocks a task.
 * OC4: until a task is drained, its pipe has a writer here: a task that closes and reopens it loses nothing.
 */
import { closeSync, constants, copyFileSync, fstatSync, ftruncateSync, openSync, renameSync } from "node:fs";
import { Socket, type SocketConstructorOpts } from "node:net";
import { join } from "node:path";
import { appendAllSync } from "../../runtime/system/whole-file.ts";

/** Linux's default pipe size: no read returns more. */
const bufferBytes = 64 * 1024;
/** Interval between two marks of a file's size (O2 of the files' reader). */
const markMs = 1_000;

const streamNames = ["stdout", "stderr"] as const;
type StreamName = (typeof streamNames)[number];

export interface TaskOutput {
  readonly taskId: string;
  /** Where the files are stored; it must exist. */
  readonly directory: string;
  /** Paths of the pipes. */
  readonly pipes: Readonly<Record<StreamName, string>>;
  /** Size of each file at which it is rotated. */
  readonly bytesMax: number;
}

/** One growing file, its predecessor, and the marks of both. */
class OutputFile {
  readonly #path: string;
  readonly #bytesMax: number;
  readonly #file: number;
  #marks: number;
  #size: number;
  #markedAt = 0;
  #markedSize: number;
  dropped = 0;

  constructor(path: string, bytesMax: number) {
    this.#path = path;
    this.#bytesMax = bytesMax;
    this.#file = openSync(path, "a", 0o600);
    this.#marks = openSync(`${path}.marks`, "a", 0o600);
    this.#size = this.#markedSize = fstatSync(this.#file).size;
    this.#mark(Date.now());
  }

  write(bytes: Uint8Array, length: number): void {
    const now = Date.now();
    try {
      // Also marked before it grows, so that output after a pause is not spread over the pause.
      if (now - this.#markedAt >= markMs) this.#mark(now);
      appendAllSync(this.#file, bytes.subarray(0, length));
      this.#size += length;
      if (this.#size >= this.#bytesMax) this.#rotate(now);
    } catch {
      this.dropped += length; // OC3
      this.#size = fstatSync(this.#file).size;
    }
  }

  flush(): void {
    try {
      if (this.#size !== this.#markedSize) this.#mark(Date.now());
    } catch {
      // A full disk: times become less exact.
    }
  }

  close(): void {
    this.flush();
    closeSync(this.#file);
    closeSync(this.#marks);
  }

  #mark(now: number): void {
    this.#markedAt = now;
    this.#markedSize = this.#size;
    // A partial mark would corrupt the next one.
    appendAllSync(this.#marks, Buffer.from(`${now} ${this.#size}\n`));
  }

  /** OC2 */
  #rotate(now: number): void {
    this.#mark(now);
    copyFileSync(this.#path, `${this.#path}.1`, constants.COPYFILE_FICLONE);
    ftruncateSync(this.#file);
    this.#size = 0;
    // Last: a reader that finds new marks continues with the rest of its file behind the old ones.
    renameSync(`${this.#path}.marks`, `${this.#path}.1.marks`);
    closeSync(this.#marks);
    this.#marks = openSync(`${this.#path}.marks`, "a", 0o600);
    this.#mark(now);
  }
}

/** One pipe and its file. */
class Pipe {
  readonly #socket: Socket;
  readonly #file: OutputFile;
  /** OC4 */
  #writer: number | null;
  readonly ended: Promise<void>;

  constructor(path: string, file: OutputFile, buffer: Uint8Array) {
    this.#file = file;
    const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    this.#writer = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
    const options: SocketConstructorOpts = {
      fd,
      readable: true,
      writable: false,
      onread: {
        // Shared: each read is written to its file before the next one begins. OC1
        buffer: () => buffer,
        callback: (length, bytes) => {
          file.write(bytes, length);
          return true;
        },
      },
    };
    this.#socket = new Socket(options);
    this.ended = new Promise((resolve) => {
      this.#socket.once("close", () => {
        this.#closeWriter();
        file.close();
        resolve();
      });
    });
    this.#socket.on("error", () => this.#socket.destroy());
    this.#socket.on("end", () => this.#socket.destroy());
  }

  flush(): void {
    this.#file.flush();
  }

  async drain(timeoutMs: number): Promise<void> {
    this.#closeWriter();
    const timer = setTimeout(() => this.#socket.destroy(), timeoutMs);
    await this.ended;
    clearTimeout(timer);
  }

  #closeWriter(): void {
    if (this.#writer !== null) closeSync(this.#writer);
    this.#writer = null;
  }
}

export class Collector {
  readonly #tasks = new Map<string, readonly Pipe[]>();
  readonly #draining = new Map<string, Promise<void>>();
  readonly #buffer = Buffer.allocUnsafeSlow(bufferBytes);
  readonly #timer = setInterval(() => this.#flush(), markMs).unref();

  get size(): number {
    return this.#tasks.size + this.#draining.size;
  }

  /** May be called repeatedly for a task. Throws if a pipe or a file cannot be opened. */
  open({ bytesMax, directory, pipes, taskId }: TaskOutput): void {
    if (this.#tasks.has(taskId) || this.#draining.has(taskId)) return;
    this.#tasks.set(
      taskId,
      streamNames.map((name) => new Pipe(pipes[name], new OutputFile(join(directory, name), bytesMax), this.#buffer)),
    );
  }

  /** Resolves when everything written is in the files, or after the timeout if a process still has the pipe open. */
  async drain(taskId: string, timeoutMs: number): Promise<void> {
    const pipes = this.#tasks.get(taskId);
    if (pipes !== undefined) {
      this.#tasks.delete(taskId);
      const drained = Promise.all(pipes.map((pipe) => pipe.drain(timeoutMs)))
        .then(() => {})
        .finally(() => this.#draining.delete(taskId));
      this.#draining.set(taskId, drained);
    }
    await this.#draining.get(taskId);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #flush(): void {
    for (const pipes of this.#tasks.values()) for (const pipe of pipes) pipe.flush();
  }
}
