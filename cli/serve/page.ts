/** Serves the web interface on this machine until Ctrl-C, and opens it in the desktop's browser. */
import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import type { UiSession } from "../../edges/ui/backend.ts";
import { listenLoopback } from "../../edges/ui/loopback.ts";
import { UsageError } from "../../lib/user-error.ts";
import { untilSignal } from "../../processes/signals.ts";
import type { Logger } from "../../runtime/ports/index.ts";
import { replaceFileSync } from "../../runtime/system/whole-file.ts";
import type { Shell } from "../shell.ts";

export const pageFlags = {
  port: { type: "string", value: "PORT", help: "Port on this machine (default: a free port)" },
  "no-open": { type: "boolean", help: "Print the address only; do not open it in a browser" },
} as const;

interface PageFlags {
  readonly port?: string | undefined;
  readonly "no-open"?: boolean | undefined;
}

interface PageOptions {
  /** The command, for texts. */
  readonly command: string;
  /** Called for each page, and when a page connects again. Rejects with an Error whose message the page shows. */
  readonly open: () => Promise<UiSession>;
}

function portOf(text: string | undefined): number {
  if (text === undefined) return 0;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (port >= 1 && port <= 65_535) return port;
  throw new UsageError(`invalid argument "${text}" for "--port" flag: expected a number from 1 to 65535`);
}

/** Resolves at a signal. Rejects with UsageError and UserError. */
export async function servePage(shell: Shell, flags: PageFlags, { command, open }: PageOptions): Promise<void> {
  const port = portOf(flags.port);
  const ending = untilSignal();
  const server = await listenLoopback({ port, command, open, log: remarks(shell) });
  shell.print(`Open in a browser on this machine, once: ${server.address}`);
  const forget = flags["no-open"] === true ? null : openInDesktop(server.address, server.port);
  shell.remark("Press Ctrl-C to stop.");
  await ending;
  forget?.();
  await server.close();
}

/** Only errors: the page itself tells what its user has to know. */
function remarks(shell: Shell): Logger {
  const nothing = (): void => undefined;
  return {
    debug: nothing,
    info: nothing,
    warn: nothing,
    error(fields, message) {
      const { err } = fields as { readonly err?: unknown };
      shell.remark(`muster: ${message}${err instanceof Error ? `: ${err.stack ?? err.message}` : ""}`);
    },
  };
}

/**
 * Opens the address where there is a desktop. Other users of the machine can read the arguments of processes, so the browser
 * gets the name of a file that only this user can read, and that leads to the address. Returns a function that removes the
 * file; null if nothing was opened.
 */
function openInDesktop(address: string, port: number): (() => void) | null {
  const { DISPLAY = "", WAYLAND_DISPLAY = "", XDG_RUNTIME_DIR: folder = "" } = process.env;
  if (!process.stdout.isTTY || folder === "" || (DISPLAY === "" && WAYLAND_DISPLAY === "")) return null;
  const file = join(folder, `muster-ui-${port}.html`);
  const forget = (): void => rmSync(file, { force: true });
  try {
    replaceFileSync(
      file,
      `<!doctype html>\n<title>Muster</title>\n<meta http-equiv="refresh" content="0; url=${address}" />\n`,
    );
  } catch {
    // The address is printed.
    return null;
  }
  const child = spawn("xdg-open", [file], { stdio: "ignore", detached: true });
  // Not installed.
  child.on("error", () => undefined);
  child.unref();
  return forget;
}
