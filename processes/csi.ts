/** The storage plugins of a process: from its flags, and from `csi/` in its data dir. */
import { join, resolve } from "node:path";
import { isPluginName, openCsiSockets, type OpenCsiSockets } from "../edges/csi/sockets.ts";
import { UsageError } from "../cli/command.ts";
import { cannotWrite } from "./data-dir.ts";

/** Socket paths by plugin name. */
export type CsiSocketPaths = ReadonlyMap<string, string>;

/** `NAME=unix:///path`, or `NAME=/path`. Throws UsageError. */
export function csiSocketPaths(texts: readonly string[]): CsiSocketPaths {
  const paths = new Map<string, string>();
  for (const text of texts) {
    const at = text.indexOf("=");
    const name = text.slice(0, Math.max(0, at));
    const path = text.slice(at + 1).replace(/^unix:\/\//, "");
    if (at < 1 || path === "" || /^[a-z]+:\/\//.test(path) || !isPluginName(name))
      throw new UsageError(`invalid argument "${text}" for "--csi-plugin" flag: expected NAME=unix:///PATH`);
    if (paths.has(name)) throw new UsageError(`--csi-plugin sets "${name}" more than once`);
    paths.set(name, resolve(path));
  }
  return paths;
}

/** Throws UserError when the directory cannot be used. */
export function openCsi(dataDir: string, named: CsiSocketPaths): OpenCsiSockets {
  const directory = join(dataDir, "csi");
  try {
    return openCsiSockets({ named, directory });
  } catch (error) {
    throw cannotWrite(directory, error);
  }
}
