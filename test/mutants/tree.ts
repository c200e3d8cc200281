/** A copy of the sources in a temporary folder, in which one mutant at a time is applied and tested. */
import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { broken, type Mutant } from "./mutant.ts";

/** Not copied; packages are linked instead. */
const leftOut: ReadonlySet<string> = new Set([".git", "node_modules"]);

interface Outcome {
  readonly status: number | null;
  readonly output: string;
  readonly isLate: boolean;
}

export class Tree {
  readonly folder: string;
  readonly #top: string;

  constructor(top: string) {
    this.#top = top;
    this.folder = mkdtempSync(join(tmpdir(), "muster-mutants-"));
    cpSync(top, this.folder, { recursive: true, filter: (path) => !leftOut.has(relative(top, path)) });
    symlinkSync(join(top, "node_modules"), join(this.folder, "node_modules"));
  }

  /** Applies the mutant while `work` runs. Throws if it does not apply. */
  async breaking<Result>(mutant: Mutant, work: () => Promise<Result>): Promise<Result> {
    const text = readFileSync(join(this.#top, mutant.file), "utf8");
    const path = join(this.folder, mutant.file);
    writeFileSync(path, broken(mutant, text));
    try {
      return await work();
    } finally {
      writeFileSync(path, text);
    }
  }

  /** Runs a program of the copy. After `timeoutMs`, it and the processes that it started are killed. */
  async run(command: string, args: readonly string[], timeoutMs: number): Promise<Outcome> {
    const bin = join(this.folder, "node_modules/.bin");
    const child = spawn(command, args, {
      cwd: this.folder,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, PATH: `${bin}:${process.env["PATH"] ?? ""}` },
      detached: true,
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => (output += chunk));
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    }, timeoutMs);
    const status = await new Promise<number | null>((resolve) => child.on("close", resolve));
    clearTimeout(timer);
    return { status, output, isLate };
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
