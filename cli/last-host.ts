/**
 * Control sockets of clusters that were started on this machine. A command that names no manager asks the one started last,
 * and says so when others run beside it.
 */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { replaceFileSync } from "../runtime/system/whole-file.ts";

/** As many clusters on one machine are remembered; the oldest is forgotten. */
const hostsMax = 16;
/** A live manager accepts a connection to its socket at once; in milliseconds. */
const probeMs = 500;

/** The user's own record first; root's is readable by all, so that whoever may open the socket also finds it. */
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
    // Absent or not ours to read: another place may have them.
    return [];
  }
}

/** `unix:///…` each, the one started last first; empty when nothing was started here. */
export function knownHosts(): readonly string[] {
  return (
    places()
      .map(readHosts)
      .find((hosts) => hosts.length > 0) ?? []
  );
}

/** Changes the first record that can be written; a machine where none can still runs, but its commands need --host. */
function change(edit: (hosts: readonly string[]) => readonly string[]): void {
  for (const place of places()) {
    try {
      mkdirSync(dirname(place), { recursive: true });
      const hosts = edit(readHosts(place));
      replaceFileSync(place, hosts.map((host) => `${host}\n`).join(""), { mode: 0o644 });
      return;
    } catch {
      // Read-only or not ours.
    }
  }
}

export function rememberHost(host: string): void {
  change((hosts) => [host, ...hosts.filter((other) => other !== host)].slice(0, hostsMax));
}

/** For a cluster that ends in order. One that is killed stays, and is told apart by `answers`. */
export function forgetHost(host: string): void {
  if (knownHosts().includes(host)) change((hosts) => hosts.filter((other) => other !== host));
}

/** Whether somebody accepts connections on a control socket. */
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
