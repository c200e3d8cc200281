/** Docker's confirmation prompt before something that cannot be undone; only `y` confirms. */
import { createInterface } from "node:readline";
import type { Shell } from "./shell.ts";

/** Reads one line of standard input, typed or piped; end of input declines. */
export async function isConfirmed(shell: Shell, warning: string): Promise<boolean> {
  const question = `WARNING! ${warning}\nAre you sure you want to continue? [y/N] `;
  await shell.write(new TextEncoder().encode(question), "err");
  const lines = createInterface({ input: process.stdin });
  const answer = await new Promise<string>((resolve) => {
    lines.once("line", resolve);
    lines.once("close", () => resolve(""));
  });
  lines.close();
  // An open pipe must not keep the process alive.
  process.stdin.destroy();
  return /^\s*y\s*$/i.test(answer);
}
