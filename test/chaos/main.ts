/**
 * `npm run chaos -- --faults N --seed S`: a real cluster on machines of its own, to which N faults are done, one after the
 * other. Exit status 0 when every check held after each; 1 with the failing check, seed and fault; 2 for a wrong command
 * line; 3 where it cannot run.
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
