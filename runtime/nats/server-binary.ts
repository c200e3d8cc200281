/** Finds the nats-server to run. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { textOf } from "./errors.ts";
import { NatsServerProblem } from "./server-problem.ts";

const versionMsMax = 10_000;

/** Where distributions put it, for a user whose PATH lacks the system folders. */
const binariesByDefault = ["nats-server", "/usr/sbin/nats-server", "/usr/local/sbin/nats-server"];

/** Finds the binary by running it: a name without a slash is looked up on PATH. */
export async function findBinary(
  named: string | undefined,
): Promise<{ readonly binary: string; readonly version: string }> {
  for (const binary of named === undefined ? binariesByDefault : [named]) {
    const found = await versionOf(binary);
    if (found !== null) return { binary, version: found };
  }
  throw new NatsServerProblem(
    "missing",
    named === undefined
      ? "nats-server was not found: install it (on Debian: apt-get install nats-server), or name it in MUSTER_NATS_SERVER."
      : `There is no nats-server at ${named}: correct MUSTER_NATS_SERVER, or unset it to use the one on PATH.`,
  );
}

/** Null when there is no such file. */
async function versionOf(binary: string): Promise<string | null> {
  try {
    const { stdout } = await promisify(execFile)(binary, ["--version"], { timeout: versionMsMax });
    const [, version] = /nats-server: v?(\d+\.\d+\.\d+\S*)/.exec(stdout) ?? [];
    if (version !== undefined) return version;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new NatsServerProblem(
      "missing",
      `${binary} does not run (${textOf(error)}): install nats-server again, or name another in MUSTER_NATS_SERVER.`,
      { cause: error },
    );
  }
  throw new NatsServerProblem("missing", `${binary} is no nats-server: name one in MUSTER_NATS_SERVER.`);
}
