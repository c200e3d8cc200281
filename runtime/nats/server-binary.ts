/** Finds the nats-server to run. */
import { execFile } from "node:child_process";
import { stat } from "node:fs/promises";
import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import { promisify } from "node:util";
import { isCurrent } from "./abilities.ts";
import { textOf } from "./errors.ts";
import pinned from "./pinned-server.json" with { type: "json" };
import { NatsServerProblem } from "./server-problem.ts";

const versionMsMax = 10_000;

/** Where distributions install it, for a user whose PATH lacks the system folders. */
const systemBinaries = ["/usr/sbin/nats-server", "/usr/local/sbin/nats-server"];

interface FoundBinary {
  readonly binary: string;
  readonly version: string;
}

/**
 * Finds the binary by running it; a name without a slash is looked up on PATH. A configured binary is used whatever its
 * version; otherwise the first current one (2.11 or newer) of PATH, the user's cache (where `npm start` puts the pinned
 * version) and the system's folders; otherwise the first one found. Throws NatsServerProblem `missing`.
 */
export async function findBinary(named: string | undefined): Promise<FoundBinary> {
  if (named !== undefined) {
    const version = await versionOf(named);
    if (version !== null) return { binary: named, version };
    throw new NatsServerProblem(
      "missing",
      `no nats-server at ${named}: correct MUSTER_NATS_SERVER, or unset it to use the one on PATH`,
    );
  }
  let old: FoundBinary | null = null;
  let broken: unknown = null;
  for (const binary of ["nats-server", cachedBinary(), ...systemBinaries]) {
    if (binary === cachedBinary() && !(await isOwn(binary))) continue;
    try {
      const version = await versionOf(binary);
      if (version === null) continue;
      if (isCurrent(version)) return { binary, version };
      old ??= { binary, version };
    } catch (error) {
      broken ??= error;
    }
  }
  if (old !== null) return old;
  throw (
    broken ??
    new NatsServerProblem(
      "missing",
      "nats-server was not found: run 'npm run setup' where Muster's package.json is, which installs one without root, or set MUSTER_NATS_SERVER to its path",
    )
  );
}

/** Where `npm start` and `npm test` keep the pinned version: like `cacheFolder` in tools/setup-nats.mjs. */
export function cachedBinary(): string {
  return join(cacheFolder(), `nats-server-${pinned.version}`, "nats-server");
}

/** Muster's folder in the user's cache, for programs that are built or downloaded once. */
export function cacheFolder(): string {
  const named = process.env["XDG_CACHE_HOME"] ?? "";
  const base = isAbsolute(named) ? named : join(process.env["HOME"] || homedir(), ".cache");
  return join(base, "muster");
}

/** Whether only this user can have put the file there: root with another user's HOME must not run that user's file. */
async function isOwn(path: string): Promise<boolean> {
  try {
    const { uid, mode } = await stat(path);
    return uid === process.getuid?.() && (mode & 0o022) === 0;
  } catch {
    return false;
  }
}

/** Null if the file does not exist. */
async function versionOf(binary: string): Promise<string | null> {
  try {
    const { stdout } = await promisify(execFile)(binary, ["--version"], { timeout: versionMsMax });
    const [, version] = /nats-server: v?(\d+\.\d+\.\d+\S*)/.exec(stdout) ?? [];
    if (version !== undefined) return version;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new NatsServerProblem(
      "missing",
      `${binary} does not run (${textOf(error)}): reinstall nats-server, or set MUSTER_NATS_SERVER to another one`,
      { cause: error },
    );
  }
  throw new NatsServerProblem("missing", `${binary} is not a nats-server: set MUSTER_NATS_SERVER to the path of one`);
}
