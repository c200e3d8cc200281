/**
 * Artifacts: files that are fetched before a task starts, like Nomad's `artifact`.
 *
 * A1: a file without the requested checksum is never in the task's directory.
 * A2: an artifact ends up where the task's user may write, whatever links exist.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, createWriteStream, mkdtempSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { User } from "../../linux/user.ts";
import type { Tools } from "../../linux/system-tools.ts";
import type { ExecConfig } from "./fields.ts";
import { shell } from "./run-file.ts";
import { relativeTarget } from "./volumes.ts";

/** Nomad's `http_read_timeout` and `http_max_size`. */
const fetchMsMax = 30 * 60_000;
const artifactBytesMax = 100e9;
/** Maximum length of an unpacking program's quoted standard error. */
const complaintMax = 300;

const digits: Readonly<Record<string, number>> = { md5: 32, sha1: 40, sha256: 64, sha512: 128 };
const archives: readonly (readonly [RegExp, "tar" | "unzip"])[] = [
  [/\.(tar|tar\.gz|tgz|tar\.bz2|tbz2|tar\.xz|txz|tar\.zst)$/, "tar"],
  [/\.zip$/, "unzip"],
];

type Asked = ExecConfig["artifact"][number];

interface Artifact {
  readonly source: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Null: none was requested. */
  readonly checksum: { readonly algorithm: string; readonly hex: string } | null;
  readonly mode: "any" | "file" | "dir";
  /** Path in the task's directory: of a file in mode `file`, otherwise of a directory. Empty: the directory itself. */
  readonly way: readonly string[];
  readonly name: string;
  readonly unpacker: "tar" | "unzip" | null;
}

/** Throws if the artifact is invalid. */
function artifactOf({ checksum, destination, headers, mode, source }: Asked): Artifact {
  const url = URL.parse(source);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:"))
    throw new Error(`invalid artifact "${source}": expected an http or https URL`);
  const [, algorithm = "", hex = ""] = /^(\w+):([0-9a-fA-F]+)$/.exec(checksum ?? "") ?? [];
  if ((checksum ?? "") !== "" && hex.length !== digits[algorithm])
    throw new Error(
      `artifact ${source}: invalid checksum: expected md5:, sha1:, sha256: or sha512: with hexadecimal digits`,
    );
  if (mode !== "any" && mode !== "file" && mode !== "dir")
    throw new Error(`artifact ${source}: invalid mode "${mode}": expected any, file or dir`);
  const isHome = /^[./]*$/.test(destination) && !destination.includes("..");
  const target = isHome ? "" : relativeTarget(destination);
  if (target === null || (isHome && mode === "file"))
    throw new Error(`artifact ${source}: the destination "${destination}" is outside the task's directory`);
  const name = basename(decodeURIComponent(url.pathname)) || "artifact";
  if (name.includes("/") || name === "..") throw new Error(`artifact ${source}: its URL does not end with a file name`);
  const unpacker = mode === "file" ? null : (archives.find(([ending]) => ending.test(name))?.[1] ?? null);
  if (mode === "dir" && unpacker === null) throw new Error(`artifact ${source}: ${name} is not an archive`);
  return {
    source,
    headers,
    checksum: hex === "" ? null : { algorithm, hex: hex.toLowerCase() },
    mode,
    way: target === "" ? [] : target.split("/"),
    name,
    unpacker,
  };
}

/** A1 */
async function download({ checksum, headers, source }: Artifact, path: string, bytesMax: number): Promise<void> {
  const answer = await fetch(source, { headers, signal: AbortSignal.timeout(fetchMsMax) });
  if (!answer.ok || answer.body === null) {
    await answer.body?.cancel();
    throw new Error(`the server answered with status ${answer.status}`);
  }
  const hash = createHash(checksum?.algorithm ?? "sha256");
  let bytes = 0;
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      hash.update(chunk);
      done(bytes > bytesMax ? new Error(`it is larger than ${bytesMax} bytes`) : null, chunk);
    },
  });
  await pipeline(
    Readable.fromWeb(answer.body as never),
    counted,
    createWriteStream(path, { mode: 0o644, flags: "wx" }),
  );
  const found = hash.digest("hex");
  if (checksum !== null && found !== checksum.hex)
    throw new Error(`${checksum.algorithm} mismatch: got ${found}, expected ${checksum.hex}`);
}

/** $1 is the source, $2 the target directory, $3 the target file; further arguments are the unpacking program. */
const placing = `set -e
from=$1 folder=$2 file=$3
shift 3
mkdir -p -- "$folder"
if [ "$#" -gt 0 ]; then exec "$@"; fi
cp -- "$from" "$file"
chmod 755 -- "$file"`;

/**
 * A2: runs with the task's rights, since other processes with these rights could create links in the task's directory
 * meanwhile. A file that is not unpacked is made executable.
 */
async function place(artifact: Artifact, from: string, { home, tools, user }: FetchOptions): Promise<void> {
  const { mode, name, unpacker, way } = artifact;
  const folder = join(home, ...(mode === "file" ? way.slice(0, -1) : way));
  const file = mode === "file" ? join(home, ...way) : join(folder, name);
  let unpacking: readonly string[] = [];
  if (unpacker !== null) {
    const program = tools[unpacker];
    if (program === null) throw new Error(`cannot unpack it: ${unpacker} is not installed on this node`);
    const args = { tar: ["-x", "--no-same-owner", "-f", from, "-C", folder], unzip: ["-q", "-o", from, "-d", folder] };
    unpacking = [program, ...args[unpacker]];
  }
  const as = user === null || process.getuid?.() !== 0 ? {} : { uid: user.uid, gid: user.gid };
  const child = spawn(shell, ["-c", placing, "sh", from, folder, file, ...unpacking], {
    ...as,
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let text = "";
  child.stderr.on("data", (chunk: Buffer) => (text = (text + chunk.toString("utf8")).slice(0, complaintMax)));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  if (code !== 0) throw new Error(`cannot place it in the task's directory: ${text.trim() || `exit code ${code}`}`);
}

interface FetchOptions {
  /** The task's directory, or empty if it has none. */
  readonly home: string;
  readonly user: User | null;
  readonly tools: Tools;
  readonly tell: (message: string) => void;
  readonly bytesMax?: number;
}

/** Fetches one after the other. Throws with the artifact and the reason, if possible before fetching anything. */
export async function fetchArtifacts(asked: readonly Asked[], options: FetchOptions): Promise<void> {
  if (asked.length === 0) return;
  const { bytesMax = artifactBytesMax, home, tell } = options;
  if (home === "") throw new Error("cannot fetch artifacts: the task has no directory");
  for (const artifact of asked.map(artifactOf)) {
    // Only the driver can write there.
    const folder = mkdtempSync(join(dirname(home), ".artifact-"));
    try {
      chmodSync(folder, 0o755);
      const path = join(folder, artifact.name);
      tell(`fetching ${artifact.source}`);
      await download(artifact, path, bytesMax);
      await place(artifact, path, options);
    } catch (error) {
      const cause = (error as Error).cause;
      const reason =
        cause instanceof Error ? `${(error as Error).message}: ${cause.message}` : (error as Error).message;
      throw new Error(`artifact ${artifact.source}: ${reason}`, { cause: error });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
}
