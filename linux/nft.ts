/**
 * The interface to the kernel: the `nft` executable, one run per transaction.
 *
 * K1: nft reads a script from a file that was complete before it started, so a killed driver leaves either nothing or a whole
 *     transaction. Reading from a pipe, it would apply whatever had been written so far.
 * K2: only nftables' own executable is accepted: other programs are called nft, and one that exits successfully without doing
 *     anything would leave the node open.
 */
import { spawn, type ChildProcessByStdio } from "node:child_process";
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { writeAllSync } from "../runtime/system/whole-file.ts";

export type Outcome =
  | { readonly kind: "done"; readonly output: string }
  | { readonly kind: "failed"; readonly reason: string };

/**
 * Far longer than the largest script takes (100,000 elements: half a second), so that a hanging nft does not block the driver.
 */
const timeoutMs = 60_000;
/** The first lines contain the error; for a script that is wrong throughout, nft reports every line. */
const errorOutputBytesMax = 2_000;

/** Searched before PATH, where another tool of that name may come first (K2). */
const places = ["/usr/sbin/nft", "/sbin/nft", "/usr/local/sbin/nft", "/usr/bin/nft"];

export class Nft {
  readonly #command: string;
  #isBelieved = false;

  /** `command`: null for the system's. */
  constructor(command: string | null = null) {
    this.#command = command ?? places.find((place) => existsSync(place)) ?? "nft";
  }

  /** Applies the whole script or nothing: one transaction. */
  async apply(script: string): Promise<Outcome> {
    if (!this.#isBelieved) {
      const version = await this.#run(["--version"], "ignore");
      if (version.kind === "failed") return version;
      if (!version.output.startsWith("nftables "))
        return { kind: "failed", reason: `${this.#command} is not nftables' nft` };
      this.#isBelieved = true;
    }
    return this.#apply(script);
  }

  #apply(script: string): Promise<Outcome> {
    let file: number | null = null;
    try {
      const folder = mkdtempSync(join(tmpdir(), "muster-nft-"));
      try {
        file = openSync(join(folder, "script"), "wx+", 0o600);
      } finally {
        // Unlinked from here on: a killed driver leaves no files.
        rmSync(folder, { recursive: true, force: true });
      }
      const to = file;
      // At explicit positions, so that nft starts reading at the beginning of the file.
      writeAllSync(to, Buffer.from(script), (_, bytes, at, length) => writeSync(to, bytes, at, length, at));
      return this.#run(["-f", "-"], file);
    } catch (error) {
      return Promise.resolve({ kind: "failed", reason: error instanceof Error ? error.message : "no temporary file" });
    } finally {
      // The child has its own file descriptor by now. K1
      if (file !== null) closeSync(file);
    }
  }

  /** The chains, sets and maps of an `inet` table, as nft's JSON, without elements. */
  list(table: string): Promise<Outcome> {
    return this.#run(["-t", "-j", "list", "table", "inet", table], "ignore");
  }

  #run(args: readonly string[], input: number | "ignore"): Promise<Outcome> {
    return new Promise((resolve) => {
      const child = spawn(this.#command, args, { stdio: [input, "pipe", "pipe"] }) as ChildProcessByStdio<
        null,
        Readable,
        Readable
      >;
      let output = "";
      let errorOutput = "";
      const timer = setTimeout(() => child.kill("SIGKILL"), timeoutMs);
      const finish = (outcome: Outcome): void => {
        clearTimeout(timer);
        resolve(outcome);
      };
      child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
      child.stderr.setEncoding("utf8").on("data", (text: string) => {
        if (errorOutput.length < errorOutputBytesMax) errorOutput += text.slice(0, errorOutputBytesMax);
      });
      child.on("error", (error) => finish({ kind: "failed", reason: `${this.#command}: ${error.message}` }));
      child.on("close", (code, signal) => {
        if (code === 0) finish({ kind: "done", output });
        else finish({ kind: "failed", reason: errorOutput.trim() || `${this.#command} exited with ${signal ?? code}` });
      });
    });
  }
}
