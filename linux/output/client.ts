/**
 * The agent's client of its output collector: connects to an earlier agent's collector, or starts one. If it dies, it is
 * restarted with the pipes that were open.
 */
import { spawn } from "node:child_process";
import { connect, type Socket } from "node:net";
import { programStart } from "../../lib/installation.ts";
import type { Logger } from "../../runtime/ports/index.ts";
import type { TaskOutput } from "./collector.ts";
import { lines, type OutputAnswer, type OutputQuestion } from "./messages.ts";

/** Milliseconds for starting a Node process on a busy machine. */
const startMsMax = 20_000;
/** Milliseconds to wait for the answer to `leave`. */
const leaveMsMax = 2_000;

type Question = OutputQuestion extends infer Each ? (Each extends OutputQuestion ? Omit<Each, "id"> : never) : never;

export class OutputClient {
  readonly #path: string;
  readonly #log: Logger;
  readonly #opened = new Map<string, TaskOutput>();
  readonly #waiting = new Map<
    number,
    { readonly resolve: () => void; readonly reject: (error: Error) => void; readonly socket: Socket }
  >();
  #socket: Promise<Socket> | null = null;
  #last = 0;
  #isClosed = false;

  /** `path`: of its socket, at most 107 bytes. */
  constructor(path: string, log: Logger) {
    this.#path = path;
    this.#log = log;
  }

  /** Rejects if a pipe or file cannot be opened. May be called repeatedly. */
  async open(output: TaskOutput): Promise<void> {
    await this.#ask({ kind: "open", output });
    this.#opened.set(output.taskId, output);
  }

  /** Resolves when the task's output is in its files, at the latest about `timeoutMs` later. */
  async drain(taskId: string, timeoutMs: number): Promise<void> {
    this.#opened.delete(taskId);
    await this.#ask({ kind: "drain", taskId, timeoutMs });
  }

  /** Closes the connection; the collector keeps running while tasks write, and exits otherwise. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const socket = await this.#socket?.catch(() => null);
    if (socket == null) return;
    const timer = setTimeout(() => socket.destroy(), leaveMsMax);
    await this.#send(socket, { kind: "leave" }).catch(() => {});
    clearTimeout(timer);
    socket.destroy();
  }

  async #ask(question: Question): Promise<void> {
    const socket = await this.#connected();
    return this.#send(socket, question);
  }

  #send(socket: Socket, question: Question): Promise<void> {
    return new Promise((resolve, reject) => {
      const id = (this.#last += 1);
      this.#waiting.set(id, { resolve, reject, socket });
      socket.write(`${JSON.stringify({ id, ...question })}\n`);
    });
  }

  #connected(): Promise<Socket> {
    if (this.#socket === null) {
      const opening = this.#open();
      this.#socket = opening;
      opening.catch(() => {
        if (this.#socket === opening) this.#socket = null;
      });
    }
    return this.#socket;
  }

  async #open(): Promise<Socket> {
    const socket = (await this.#dial()) ?? (await this.#start());
    lines(socket, (line) => {
      const { error, id } = JSON.parse(line) as OutputAnswer;
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === null) waiting?.resolve();
      else waiting?.reject(new Error(error));
    });
    socket.once("close", () => this.#lost(socket));
    // An earlier collector may have died with its agent: what is open here is opened there.
    await Promise.all(
      [...this.#opened.values()].map((output) =>
        this.#send(socket, { kind: "open", output }).catch((error: unknown) =>
          this.#log.error({ error, task: output.taskId }, "the output of a task is lost"),
        ),
      ),
    );
    return socket;
  }

  #dial(): Promise<Socket | null> {
    return new Promise((resolve) => {
      const socket = connect(this.#path);
      socket.on("error", () => resolve(null));
      socket.once("connect", () => resolve(socket));
    });
  }

  async #start(): Promise<Socket> {
    const { args, command } = programStart("linux/output/main", ["--max-semi-space-size=1"]);
    const child = spawn(command, [...args, this.#path], {
      detached: true,
      stdio: ["ignore", "pipe", "ignore"],
      env: {},
    });
    try {
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error("it did not start in time")), startMsMax);
        child.once("error", reject);
        child.once("exit", () => reject(new Error("it exited during startup")));
        child.stdout.once("data", () => {
          clearTimeout(timer);
          resolve();
        });
      });
    } catch (error) {
      child.kill("SIGKILL");
      throw new Error(`cannot start the output collector: ${(error as Error).message}`);
    }
    child.stdout.destroy();
    child.unref();
    const socket = await this.#dial();
    if (socket === null) throw new Error("the output collector does not answer");
    return socket;
  }

  #lost(socket: Socket): void {
    this.#socket = null;
    for (const [id, waiting] of this.#waiting) {
      if (waiting.socket !== socket) continue;
      this.#waiting.delete(id);
      waiting.reject(new Error("the output collector has exited"));
    }
    if (this.#isClosed || this.#opened.size === 0) return;
    this.#log.warn({}, "the output collector has exited; restarting it");
    this.#connected().catch((error: unknown) => this.#log.error({ error }, "the output of tasks is lost"));
  }
}
