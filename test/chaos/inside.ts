/** A chaos run, within the walls that sandbox.ts has put up: its last argument is the folder that it may use. */
import { execFileSync } from "node:child_process";
import { delimiter } from "node:path";
import { chaosOptions } from "./options.ts";
import { run } from "./run.ts";

const args = process.argv.slice(2);
const folder = args.pop() ?? "";
// npm puts the packages' commands first, one of which is called nft as well.
process.env["PATH"] = (process.env["PATH"] ?? "")
  .split(delimiter)
  .filter((path) => !path.includes("node_modules"))
  .join(delimiter);
// Control groups are not per namespace: tasks do without, so that none is left behind. /run has what only this run needs.
execFileSync("umount", ["--recursive", "--lazy", "/sys/fs/cgroup"], { stdio: "ignore" });
execFileSync("mount", ["-t", "tmpfs", "chaos-run", "/run"]);
execFileSync("ip", ["link", "set", "lo", "up"]);
const ending = new AbortController();
process.stdin.once("end", () => ending.abort()).resume();
const isPassed = await run(chaosOptions(args), folder, ending.signal);
process.exit(isPassed ? 0 : 1);
