/** Measures this machine for `muster doctor`. Nothing is left behind. */
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statfsSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { isCurrent } from "../../runtime/nats/abilities.ts";
import { findBinary } from "../../runtime/nats/server-binary.ts";
import { replaceFile } from "../../runtime/system/whole-file.ts";
import { wantedPrograms, type MachineFacts } from "./machine.ts";

/** Bytes of each write: an append of the log is about as large. */
const writeBytes = 4_096;
const writes = 16;

export async function probeMachine(dataDir: string, tcpPorts: readonly number[] | null): Promise<MachineFacts> {
  const path = existing(dataDir);
  const { bavail, blocks, bsize, ffree, files } = statfsSync(path);
  return {
    disk: { path, sizeBytes: blocks * bsize, freeBytes: bavail * bsize, inodes: files, freeInodes: ffree },
    fsyncMs: await fsyncTimes(path),
    takenPorts: tcpPorts === null ? null : await taken(tcpPorts),
    namespaces: readdirSync("/proc/self/ns"),
    filesystems: lines("/proc/filesystems").map((line) => line.split("\t").at(-1) ?? ""),
    cgroups: cgroups(),
    programs: wantedPrograms.filter(isInstalled),
    isClockSynchronized: await synchronized(),
    nats: await findBinary(process.env["MUSTER_NATS_SERVER"]).then(
      ({ version }) => ({ version, isCurrent: isCurrent(version) }),
      (error: Error) => ({ missing: error.message }),
    ),
  };
}

/** The folder, or the nearest one above that exists. */
function existing(path: string): string {
  let at = resolve(path);
  while (!existsSync(at)) at = dirname(at);
  return at;
}

/** Whole files, as the key file and the mark are written. */
async function fsyncTimes(path: string): Promise<readonly number[] | null> {
  let folder: string;
  try {
    folder = mkdtempSync(join(path, ".muster-doctor-"));
  } catch {
    return null;
  }
  try {
    const times: number[] = [];
    for (let n = 0; n < writes; n += 1) {
      const begun = performance.now();
      await replaceFile(join(folder, "write"), Buffer.alloc(writeBytes, n));
      // The file and its folder are flushed, one after the other.
      times.push((performance.now() - begun) / 2);
    }
    return times;
  } catch {
    return null;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function taken(tcpPorts: readonly number[]): Promise<readonly string[]> {
  const found = await Promise.all(
    tcpPorts.map(
      (port) =>
        new Promise<string | null>((done) => {
          const server = createServer();
          server.once("error", (error: NodeJS.ErrnoException) =>
            done(error.code === "EADDRINUSE" ? `${port}/tcp` : null),
          );
          server.listen(port, () => server.close(() => done(null)));
        }),
    ),
  );
  return found.filter((each) => each !== null);
}

function lines(path: string): readonly string[] {
  try {
    return readFileSync(path, "utf8").trim().split("\n");
  } catch {
    return [];
  }
}

function cgroups(): MachineFacts["cgroups"] {
  const [unified = ""] = lines("/sys/fs/cgroup/cgroup.controllers");
  if (unified !== "") return { version: 2, controllers: unified.split(" ") };
  // Names, then hierarchy, number of groups and whether it is enabled.
  const controllers = lines("/proc/cgroups")
    .map((line) => line.split("\t"))
    .filter(([name = "", , , enabled]) => enabled === "1" && existsSync(join("/sys/fs/cgroup", name)))
    .map(([name = ""]) => name);
  return controllers.length === 0 ? null : { version: 1, controllers };
}

function isInstalled(program: string): boolean {
  const folders = [...(process.env["PATH"] ?? "").split(":"), "/usr/sbin", "/sbin"];
  return folders.some((folder) => folder !== "" && existsSync(join(folder, program)));
}

/** systemd's answer, which covers every NTP client; null without systemd. */
async function synchronized(): Promise<boolean | null> {
  try {
    const asked = promisify(execFile)("timedatectl", ["show", "--property=NTPSynchronized", "--value"], {
      timeout: 5_000,
    });
    const { stdout } = await asked;
    return stdout.trim() === "yes" ? true : stdout.trim() === "no" ? false : null;
  } catch {
    return null;
  }
}
