/** A question before something that cannot be undone, as Docker asks it; only `y` is a yes. */
import { createInterface } from "node:readline";
import type { Shell } from "./shell.ts";

/** The answer is one line of standard input, typed or piped in; its end is a no. */
export async function isConfirmed(shell: Shell, warning: string): Promise<boolean> {
  const question = `WARNING! ${warning}\nAre you sure you want to continue? [y/N] `;
  await shell.write(new TextEncoder().encode(question), "err");
  const lines = createInterface({ input: process.stdin });
  const answer = await new Promise<string>((resolve) => {
    lines.once("line", resolve);
    lines.once("close", () => resolve(""));
  });
  lines.close();
  // A pipe that stays open is nobody's reason to stay.
  process.stdin.destroy();
  return /^\s*y\s*$/i.test(answer);
}
