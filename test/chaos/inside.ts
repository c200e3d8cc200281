/** A chaos run, inside the sandbox that sandbox.ts has set up; its last argument is the folder that it may use. */
import { execFileSync } from "node:child_process";
import { delimiter } from "node:path";
import { chaosOptions } from "./options.ts";
import { run } from "./run.ts";

const args = process.argv.slice(2);
const folder = args.pop() ?? "";
// npm puts the packages' commands first on PATH, and one of them is also called nft.
process.env["PATH"] = (process.env["PATH"] ?? "")
  .split(delimiter)
  .filter((path) => !path.includes("node_modules"))
  .join(delimiter);
// Control groups are not namespaced: tasks run without them, so that none is left behind. /run has only what this run needs.
execFileSync("umount", ["--recursive", "--lazy", "/sys/fs/cgroup"], { stdio: "ignore" });
execFileSync("mount", ["-t", "tmpfs", "chaos-run", "/run"]);
execFileSync("ip", ["link", "set", "lo", "up"]);
const ending = new AbortController();
process.stdin.once("end", () => ending.abort()).resume();
const isPassed = await run(chaosOptions(args), folder, ending.signal);
process.exit(isPassed ? 0 : 1);
