/**
 * `npm run chaos -- --faults N --seed S`: injects N faults, one after the other, into a real cluster with a machine for each
 * process. Exit status: 0 if every check held after each fault; 1 with the failing check, seed and fault; 2 for a wrong command
 * line; 3 if it cannot run here.
 */
import { fileURLToPath } from "node:url";
import { orExit } from "../support/script-arguments.ts";
import { chaosOptions } from "./options.ts";
import { chaosMissing, runInSandbox } from "./sandbox.ts";

const args = process.argv.slice(2);
orExit(() => chaosOptions(args));
const missing = chaosMissing();
if (missing !== null) {
  process.stderr.write(`a chaos run is not possible here: ${missing}\n`);
  process.exit(3);
}
const inside = fileURLToPath(new URL("inside.ts", import.meta.url));
process.exitCode = await runInSandbox([process.execPath, ...process.execArgv, inside, ...args]);
