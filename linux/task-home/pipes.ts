/**
 * Creates named pipes, for which Node has no call. Requests that arrive while one `mkfifo` runs share the next one: starting a
 * program blocks the whole agent, on a busy machine for tens of milliseconds, and five hundred tasks that start together each
 * need pipes.
 */
import { execFile } from "node:child_process";
import { lstat } from "node:fs/promises";
import { promisify } from "node:util";

/** Requests per program: far below the limit of a command line. */
const requestsMax = 100;

interface PipeRequest {
  readonly paths: readonly string[];
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

const run = promisify(execFile);

/** Creates as many as possible. Rejects if any failed, with `stderr` naming it. */
async function mkfifo(paths: readonly string[]): Promise<void> {
  await run("mkfifo", ["-m", "0600", ...paths]);
}

export class PipeMaker {
  readonly #mkfifo: typeof mkfifo;
  readonly #waiting: PipeRequest[] = [];
  #isBusy = false;

  constructor(make: typeof mkfifo = mkfifo) {
    this.#mkfifo = make;
  }

  /** Readable by their owner only. Existing pipes are left alone. Rejects if one of them cannot be created. */
  async make(paths: readonly string[]): Promise<void> {
    const missing: string[] = [];
    for (const path of paths) if (!(await isPipe(path))) missing.push(path);
    if (missing.length === 0) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.push({ paths: missing, resolve, reject });
    if (!this.#isBusy) void this.#work();
    return promise;
  }

  async #work(): Promise<void> {
    this.#isBusy = true;
    while (this.#waiting.length > 0) await this.#grant(this.#waiting.splice(0, requestsMax));
    this.#isBusy = false;
  }

  async #grant(requests: readonly PipeRequest[]): Promise<void> {
    try {
      await this.#mkfifo(requests.flatMap(({ paths }) => paths));
      for (const { resolve } of requests) resolve();
    } catch (error) {
      // Some of the pipes may have been created.
      for (const { paths, reject, resolve } of requests) {
        const exists = await Promise.all(paths.map(isPipe));
        if (exists.every(Boolean)) resolve();
        else reject(new Error(reasonFor(paths, error as Error & { readonly stderr?: string })));
      }
    }
  }
}

/** The program's message about these paths. */
function reasonFor(paths: readonly string[], { message, stderr = "" }: Error & { readonly stderr?: string }): string {
  const lines = stderr.split("\n").filter((line) => paths.some((path) => line.includes(path)));
  return lines.length > 0 ? lines.join("; ") : (message.split("\n")[0] ?? message);
}

function isPipe(path: string): Promise<boolean> {
  return lstat(path).then(
    (facts) => facts.isFIFO(),
    () => false,
  );
}
