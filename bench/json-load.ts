/** Messages between the processes of the JSON API's benchmark. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export interface Load {
  readonly tasks: number;
  readonly changesPerSecond: number;
  readonly seconds: number;
}

/** Bytes. TLS allocates its memory outside of Node's heap. */
export interface Memory {
  readonly rss: number;
  readonly managed: number;
}

export interface Ran {
  readonly changes: number;
  readonly cpuSeconds: number;
  readonly seconds: number;
  /** The last message of each unit, by name. */
  readonly last: Readonly<Record<string, string>>;
}

/** Results of the clients; milliseconds, each of the oldest change in an answer of Next. */
export interface Seen {
  readonly answers: number;
  readonly p50: number;
  readonly p99: number;
  /** Size of all messages as received. */
  readonly bytes: number;
  /** Watchers that had not received the final state within a generous time limit. */
  readonly wrong: number;
}

/** After garbage collections; the process needs `--expose-gc`. External memory is freed one collection later. */
export async function memoryNow(): Promise<Memory> {
  for (let times = 0; times < 3; times += 1) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const { rss, heapUsed, external } = process.memoryUsage();
  return { rss, managed: heapUsed + external };
}

export interface Part {
  /** Sends one line and returns the one that answers it. */
  ask<Answer>(line: string): Promise<Answer>;
  next<Answer>(): Promise<Answer>;
  end(): Promise<void>;
}

/** The flags with which `bin/muster` starts a manager. */
const asMuster = ["--max-semi-space-size=4", "--heap-growing-percent=40"];

/** Starts a script of this folder as a process that prints JSON lines. */
export function startPart(script: string, ...args: readonly string[]): Part {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const child = spawn(process.execPath, [...asMuster, "--expose-gc", path, ...args], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async <Answer>(): Promise<Answer> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error(`${script} ended`);
    return JSON.parse(value) as Answer;
  };
  return {
    next,
    ask<Answer>(line: string): Promise<Answer> {
      child.stdin.write(`${line}\n`);
      return next<Answer>();
    },
    async end() {
      const exit = child.exitCode === null ? new Promise((resolve) => child.once("exit", resolve)) : null;
      child.kill("SIGKILL");
      await exit;
    },
  };
}
