/** Which control socket a command uses when it is not told: that of the last `muster up` on this machine. */
import { mkdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { replaceFileSync } from "../runtime/system/whole-file.ts";

/** The user's own record first; root's is readable by all, so that whoever may open the socket also finds it. */
function places(): readonly string[] {
  const state = process.env["XDG_STATE_HOME"];
  const own = join(state === undefined || state === "" ? join(homedir(), ".local", "state") : state, "muster", "host");
  const shared = "/run/muster/host";
  const isPrivate = state !== undefined && state !== "";
  return process.getuid?.() === 0 && !isPrivate ? [shared, own] : [own, shared];
}

/** `unix:///…`; null when nothing was started here. */
export function lastHost(): string | null {
  for (const place of places()) {
    try {
      const host = readFileSync(place, "utf8").trim();
      if (host !== "") return host;
    } catch {
      // Absent or not ours to read: the next place may have it.
    }
  }
  return null;
}

/** Writes it to the first place that can be written; a machine where none can still runs, but needs --host. */
export function rememberHost(host: string): void {
  for (const place of places()) {
    try {
      mkdirSync(dirname(place), { recursive: true });
      replaceFileSync(place, `${host}\n`, { mode: 0o644 });
      return;
    } catch {
      // Read-only or not ours.
    }
  }
}
