/** What the parts of the JSON API's benchmark, each a process of its own, tell each other. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export interface Load {
  readonly tasks: number;
  readonly changesPerSecond: number;
  readonly seconds: number;
}

/** Bytes. TLS keeps what it needs outside of what Node manages. */
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

/** What the clients saw; milliseconds, each of the oldest change in an answer of Next. */
export interface Seen {
  readonly answers: number;
  readonly p50: number;
  readonly p99: number;
  /** Of all messages, as they came. */
  readonly bytes: number;
  /** Watchers that were not told, within a time that is long enough, what is there in the end. */
  readonly wrong: number;
}

/** After collections; the process has to run with `--expose-gc`. What holds bytes outside goes one collection later. */
export async function memoryNow(): Promise<Memory> {
  for (let times = 0; times < 3; times += 1) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const { rss, heapUsed, external } = process.memoryUsage();
  return { rss, managed: heapUsed + external };
}

export interface Part {
  /** One line out, one line back. */
  ask<Answer>(line: string): Promise<Answer>;
  next<Answer>(): Promise<Answer>;
  end(): Promise<void>;
}

/** How `bin/muster` starts a manager. */
const asMuster = ["--max-semi-space-size=4", "--heap-growing-percent=40"];

/** A script of this folder as a process, which prints JSON lines. */
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
