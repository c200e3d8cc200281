/**
 * Control sockets of clusters started on this machine. A command that names no manager uses the one started last, and prints a
 * note when others are running.
 */
import { existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { connect } from "node:net";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { replaceFileSync } from "../runtime/system/whole-file.ts";

/** Clusters to remember per machine; the oldest is dropped. */
const hostsMax = 16;
/** Timeout of a connection to a control socket, in milliseconds; a live manager accepts at once. */
const probeMs = 500;

/** The user's own record first, then root's, which all users can read: whoever may open the socket can also find it. */
function places(): readonly string[] {
  const state = process.env["XDG_STATE_HOME"];
  const own = join(state === undefined || state === "" ? join(homedir(), ".local", "state") : state, "muster", "host");
  const shared = "/run/muster/host";
  const isPrivate = state !== undefined && state !== "";
  return process.getuid?.() === 0 && !isPrivate ? [shared, own] : [own, shared];
}

function readHosts(place: string): readonly string[] {
  try {
    return readFileSync(place, "utf8")
      .split("\n")
      .filter((host) => host !== "");
  } catch {
    // Absent or not readable: try the next place.
    return [];
  }
}

/** The manager of the Debian package's unit (deploy/etc/manager.yaml). */
const unitsSocket = "/var/lib/muster/manager/control.sock";

/** True also for a user who may not enter the data dir: connecting then fails with the reason. */
function mayExist(path: string): boolean {
  try {
    statSync(path);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EACCES";
  }
}

/** `unix:///…`, the one started last first; empty when none was started here. */
export function knownHosts(): readonly string[] {
  const recorded = places()
    .map(readHosts)
    .find((hosts) => hosts.length > 0);
  return recorded ?? (mayExist(unitsSocket) ? [`unix://${unitsSocket}`] : []);
}

/** Changes the first writable record; without one the machine still works, but its commands need --host. */
function change(edit: (hosts: readonly string[]) => readonly string[]): void {
  for (const place of places()) {
    try {
      mkdirSync(dirname(place), { recursive: true });
      const hosts = edit(readHosts(place));
      replaceFileSync(place, hosts.map((host) => `${host}\n`).join(""), { mode: 0o644 });
      return;
    } catch {
      // Read-only, or another user's.
    }
  }
}

export function rememberHost(host: string): void {
  change((hosts) => [host, ...hosts.filter((other) => other !== host)].slice(0, hostsMax));
}

/** For a cluster that shuts down cleanly. One that was killed stays in the record; `answers` detects it. */
export function forgetHost(host: string): void {
  if (knownHosts().includes(host)) change((hosts) => hosts.filter((other) => other !== host));
}

/** Whether a process accepts connections on a control socket. */
export function answers(host: string): Promise<boolean> {
  const path = host.replace(/^unix:\/\//, "");
  if (!existsSync(path)) return Promise.resolve(false);
  return new Promise((resolve) => {
    const socket = connect({ path, timeout: probeMs });
    const end = (isThere: boolean): void => {
      socket.destroy();
      resolve(isThere);
    };
    socket.once("connect", () => end(true));
    socket.once("timeout", () => end(false));
    socket.once("error", () => end(false));
  });
}
