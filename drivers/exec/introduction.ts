/** The first report of a new task's shell: the facts when the command starts, or the reason why it does not. */
import type { ChildProcess } from "node:child_process";
import type { RunFacts } from "./run-file.ts";
import { readRunFile } from "./run.ts";

/** For a busy machine; the shell needs some milliseconds. */
const startMsMax = 10_000;

/** The facts that the shell reports when the command starts; if the shell exits before, the reason. */
export function introduced(child: Pick<ChildProcess, "stdio" | "once">, runFile: string): Promise<RunFacts | string> {
  return new Promise((resolve) => {
    const pipe = child.stdio[4];
    let said = "";
    const settle = (): void => {
      clearTimeout(timer);
      pipe?.destroy();
      const facts = readRunFile(runFile);
      resolve(facts.main === null ? (/^fail (.*)/.exec(said)?.[1] ?? "it exited before the command started") : facts);
    };
    const timer = setTimeout(settle, startMsMax);
    pipe?.on("data", (bytes: Buffer) => {
      said += bytes.toString("utf8");
      if (said.includes("\n")) settle();
    });
    // The shell's exit may be seen before its last words.
    pipe?.once("close", settle);
    pipe?.on("error", () => {});
    child.once("error", settle);
  });
}
