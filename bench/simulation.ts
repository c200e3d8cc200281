/** Rehearsals (simulation-rows.ts), in a process like those of `muster simulate`. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { poolNodeFlags } from "../simulation/pool.ts";

const rows = fileURLToPath(new URL("simulation-rows.ts", import.meta.url));

export async function simulationTable(short: boolean): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [...poolNodeFlags, rows, short ? "short" : "whole"]);
  return stdout;
}
