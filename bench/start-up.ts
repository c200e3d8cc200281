/** The start of a command: from a checkout, from the single-file package, and Docker's own against a stock dockerd. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { packSingleFile } from "../tools/package/single-file.ts";
import { hasDockerd, startDockerd, startMuster, type Peer } from "./peers.ts";
import { percentile, table } from "./table.ts";

/** The first starts fill caches. */
const warmUps = 3;

interface Command {
  readonly name: string;
  readonly line: readonly string[];
}

function msOf([file = "", ...args]: readonly string[]): number {
  const begun = performance.now();
  execFileSync(file, args, { stdio: "ignore", timeout: 60_000 });
  return performance.now() - begun;
}

/** In turns, so that other work of the machine falls on all. */
function rowsOf(commands: readonly Command[], times: number): readonly (readonly string[])[] {
  const taken = commands.map((): number[] => []);
  for (let turn = 0; turn < warmUps + times; turn += 1)
    for (const [at, { line }] of commands.entries()) {
      const ms = msOf(line);
      if (turn >= warmUps) taken[at]?.push(ms);
    }
  return commands.map(({ name }, at) => {
    const ms = taken[at] ?? [];
    return [name, `${percentile(ms, 0.5).toFixed(0)} ms`, `${Math.min(...ms).toFixed(0)} ms`];
  });
}

export async function startUpTable(short: boolean): Promise<string> {
  const out = mkdtempSync(join(tmpdir(), "muster-bench-package-"));
  const peers: Peer[] = [];
  try {
    const single = await packSingleFile(out);
    const muster = await startMuster();
    peers.push(muster);
    const [checkout = "", ...host] = muster.commandLine;
    const commands: Command[] = [
      { name: "node -e 0", line: [process.execPath, "-e", "0"] },
      { name: "muster version, single file", line: [single, "version"] },
      { name: "muster version, checkout", line: [checkout, "version"] },
      { name: "muster node ls, single file", line: [single, ...host, "node", "ls"] },
      { name: "muster node ls, checkout", line: [checkout, ...host, "node", "ls"] },
    ];
    if (hasDockerd()) {
      const docker = await startDockerd();
      peers.push(docker);
      commands.push(
        { name: "docker --version", line: ["docker", "--version"] },
        { name: "docker node ls", line: [...docker.commandLine, "node", "ls"] },
      );
    }
    return table("Start of a command", ["command", "median", "fastest"], rowsOf(commands, short ? 3 : 21));
  } finally {
    for (const peer of peers) await peer.stop();
    rmSync(out, { recursive: true, force: true });
  }
}
