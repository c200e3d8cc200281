/** Records how long each test file takes, for the list that `npm test` prints. Every test process loads it (package.json, "ava"). */
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Names the file to which each test process appends its line. */
const variable = "MUSTER_TEST_TIMES";

interface FileTime {
  readonly file: string;
  readonly seconds: number;
}

const log = process.env[variable] ?? "";
if (log !== "") {
  // AVA can be loaded only in its own processes, and the runner loads this file as well.
  const { default: test } = await import("ava");
  process.on("exit", () => appendFileSync(log, `${JSON.stringify([test.meta.file, process.uptime()])}\n`));
}

/** For the runner: `env` goes to AVA; `slowest` reads what the files have recorded since, longest first, and removes it. */
export function startFileTimes(top: string): {
  readonly env: Readonly<Record<string, string>>;
  slowest(count: number): readonly FileTime[];
} {
  const folder = mkdtempSync(join(tmpdir(), "muster-times-"));
  const path = join(folder, "times");
  return {
    env: { [variable]: path },
    slowest(count) {
      let text = "";
      try {
        text = readFileSync(path, "utf8");
      } catch {
        // No file has ended.
      }
      rmSync(folder, { recursive: true });
      const lines = text.split("\n").filter((line) => line !== "");
      return lines
        .map((line) => JSON.parse(line) as [string, number])
        .map(([url, seconds]) => ({ file: url.replace(`file://${top}`, ""), seconds }))
        .toSorted((a, b) => b.seconds - a.seconds)
        .slice(0, count);
    },
  };
}
