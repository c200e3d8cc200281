/**
 * The files and programs that came with this `muster`: a checkout, an installed package, or the single-file command, which holds
 * them in its executable. Paths are relative to the top of the checkout, with `/`.
 */
import { readFileSync, readdirSync } from "node:fs";
import { getAsset, isSea } from "node:sea";
import { fileURLToPath } from "node:url";

/**
 * Modules that run as processes of their own, without `.ts`. Each is an entry point of the packages (tools/package/), and has no
 * `await` at its top: the scripts of a single-file command cannot.
 */
export const programs = [
  "cli/main",
  "deploy/samples/hello",
  "drivers/docker/main",
  "drivers/exec/main",
  "drivers/mock/main",
  "drivers/nftables/main",
  "linux/output/main",
  "simulation/rehearsal/process",
] as const;

type Program = (typeof programs)[number];

/** The first argument of a single-file command that makes it run the program named by the second. */
export const programArgument = "__program";

const holdsItself = isSea();
/** In a package, `lib/` is beside the chunks of its bundle: both are one folder below the top. */
const top = holdsItself ? "" : fileURLToPath(new URL("..", import.meta.url));
const extension = import.meta.url.endsWith(".ts") ? ".ts" : ".js";

/** Throws like `readFileSync` if there is no such file. */
export function installedFile(path: string): Buffer {
  return holdsItself ? Buffer.from(getAsset(path)) : readFileSync(top + path);
}

/** Names of the files directly in a folder; empty if the folder does not exist. */
export function installedNames(folder: string): readonly string[] {
  if (holdsItself) {
    const all = JSON.parse(getAsset("files.json", "utf8")) as readonly string[];
    return all
      .filter((path) => path.startsWith(folder))
      .map((path) => path.slice(folder.length))
      .filter((name) => !name.includes("/"));
  }
  try {
    return readdirSync(top + folder, { withFileTypes: true })
      .filter((entry) => entry.isFile() && !entry.name.startsWith("."))
      .map(({ name }) => name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

/** Where the file is, for messages and for programs that open it themselves. */
export function installedPath(path: string): string {
  return holdsItself ? `${process.execPath}:${path}` : top + path;
}

export interface ProgramStart {
  readonly command: string;
  readonly args: readonly string[];
}

/**
 * `nodeFlags`: for Node, such as `--max-semi-space-size=1`. A single-file command has flags of its own; these come after them, and
 * NODE_OPTIONS would come before them.
 */
export function programStart(program: Program, nodeFlags: readonly string[] = []): ProgramStart {
  return holdsItself
    ? {
        command: process.execPath,
        args: [...(nodeFlags.length === 0 ? [] : [`--node-options=${nodeFlags.join(" ")}`]), programArgument, program],
      }
    : { command: process.execPath, args: [...nodeFlags, `${top}${program}${extension}`] };
}

/** The executable of a driver of Muster's own. */
export function driverStart(driver: "exec"): ProgramStart {
  return holdsItself
    ? programStart(`drivers/${driver}/main`)
    : { command: `${top}bin/muster-driver-${driver}`, args: [] };
}
