/**
 * Runs seeds in several processes. Each process runs one seed at a time, so that a crash or an unhandled rejection belongs to that
 * seed.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import type { ProgramStart } from "../lib/installation.ts";

/** To a process: its settings, once and first; the next seed; or that the current run is to end early. */
type ToProcess<Settings, Job> =
  | { readonly kind: "settings"; readonly settings: Settings }
  | { readonly kind: "seed"; readonly seed: number; readonly job: Job | undefined }
  | { readonly kind: "cancel" };

type FromProcess<Result> =
  | { readonly kind: "progress"; readonly progress: number }
  | { readonly kind: "result"; readonly result: Result };

/**
 * Node's flags for a process. Nursery, in MiB: a simulation makes much garbage that does not live long. One that begins smaller is collected
 * often while a cluster is founded; one of 64 from the start costs as much time for its fresh memory. The old heap grows as by V8's
 * default: a single-file command is set to a smaller growth.
 */
export const poolNodeFlags = [
  "--min-semi-space-size=16",
  "--max-semi-space-size=64",
  "--heap-growing-percent=0",
  "--disable-warning=ExperimentalWarning",
];

/**
 * Starts a process of a pool, which loads its program while the caller prepares its settings. It ends once it is disconnected.
 * `program`: one that calls `runSeedsOfPool`, with `poolNodeFlags`.
 */
export function startPoolProcess({ args, command }: ProgramStart): ChildProcess {
  return spawn(command, args, { stdio: ["inherit", "inherit", "inherit", "ipc"], serialization: "advanced" });
}

interface PoolOptions<Settings, Result, Job> {
  /** As for `startPoolProcess`. */
  readonly program: ProgramStart;
  /** A process of that program which has been started already. */
  readonly started?: ChildProcess | undefined;
  readonly settings: Settings;
  readonly from: number;
  readonly count: number;
  /** Default: the number of processors. */
  readonly processes?: number | undefined;
  /** Result of a seed whose process ended, such as `exit code 1`. */
  readonly lost: (how: string) => Result;
  /** The work of a seed, if the number alone does not say it. */
  readonly jobOf?: (seed: number) => Promise<Job>;
  /** Whether no further seed is started after this result; default: never. */
  readonly isLast?: (result: Result) => boolean;
  /** Called in the order of the seeds, as soon as the earlier ones are available. */
  readonly onResult: (seed: number, result: Result) => Promise<void> | void;
  readonly onProgress?: (seed: number, progress: number) => void;
  /** Aborts: runs in progress end early, with a result, and no further one is started. */
  readonly signal?: AbortSignal;
}

/** Resolves when all results were reported. */
export async function runPool<Settings, Result, Job = undefined>(
  options: PoolOptions<Settings, Result, Job>,
): Promise<void> {
  const { count, from, lost, onProgress, onResult, processes, program, settings, signal } = options;
  let end = from + count;
  let next = from;
  let told = from;
  let telling = Promise.resolve();
  let { started } = options;
  /** Null: nothing to report. */
  const results = new Map<number, Result | null>();
  const children = new Set<ChildProcess>();
  const send = (child: ChildProcess, message: ToProcess<Settings, Job>): void => void child.send(message);
  const cancel = (): void => {
    end = Math.min(end, next);
    for (const child of children) if (child.connected) send(child, { kind: "cancel" });
  };
  if (signal?.aborted === true) return;
  signal?.addEventListener("abort", cancel);
  const tell = (): void => {
    for (let result = results.get(told); result !== undefined; result = results.get((told += 1))) {
      const [seed, found] = [told, result];
      results.delete(seed);
      if (found !== null) telling = telling.then(() => onResult(seed, found));
    }
  };
  const work = async (): Promise<void> => {
    while (next < end) {
      const child = started?.connected === true ? started : startPoolProcess(program);
      started = undefined;
      children.add(child);
      // Ctrl-C reaches all processes of a terminal, also one that is still loading its program and ends by it.
      const exited = once(child, "exit").then(([code, how]) =>
        signal?.aborted === true ? null : lost(String(how ?? `exit code ${code}`)),
      );
      send(child, { kind: "settings", settings });
      while (next < end && child.connected) {
        const seed = next++;
        send(child, { kind: "seed", seed, job: await options.jobOf?.(seed) });
        const answered = new Promise<Result>((resolve) => {
          const hear = (message: FromProcess<Result>): void => {
            if (message.kind === "progress") return onProgress?.(seed, message.progress);
            child.off("message", hear);
            return resolve(message.result);
          };
          child.on("message", hear);
        });
        const result = await Promise.race([answered, exited]);
        if (result !== null && options.isLast?.(result) === true) end = Math.min(end, next);
        results.set(seed, result);
        tell();
      }
      if (child.connected) child.disconnect();
      children.delete(child);
    }
  };
  await Promise.all(Array.from({ length: Math.min(count, processes ?? availableParallelism()) }, work));
  signal?.removeEventListener("abort", cancel);
  await telling;
}

interface SeedRun<Settings, Job> {
  readonly settings: Settings;
  readonly job: Job;
  readonly onProgress: (progress: number) => void;
  readonly isCancelled: () => boolean;
}

/** The side of a pool's process: runs the seeds that its parent sends, one after another, and ends with the parent. */
export function runSeedsOfPool<Settings, Result, Job = undefined>(
  run: (seed: number, given: SeedRun<Settings, Job>) => Promise<Result>,
): void {
  let settings: Settings | undefined;
  let isCancelled = false;
  const answer = (message: FromProcess<Result>): void => void process.send?.(message);
  // Ctrl-C reaches all processes of a terminal; the parent then cancels.
  process.on("SIGINT", () => undefined);
  process.on("message", (message: ToProcess<Settings, Job>) => {
    switch (message.kind) {
      case "settings":
        settings = message.settings;
        return;
      case "cancel":
        isCancelled = true;
        return;
      case "seed":
        void run(message.seed, {
          settings: settings as Settings,
          job: message.job as Job,
          onProgress: (progress) => answer({ kind: "progress", progress }),
          isCancelled: () => isCancelled,
        }).then((result) => answer({ kind: "result", result }));
    }
  });
}
