/** `--csi-plugin`: a storage plugin and its socket. */
import { resolve } from "node:path";
import { isPluginName } from "../../edges/csi/sockets.ts";
import { UsageError } from "../../lib/user-error.ts";
import type { CsiSocketPaths } from "../../processes/csi.ts";

export const csiFlag = {
  type: "string",
  multiple: true,
  value: "NAME=unix:///PATH",
  help: "CSI plugin and the socket that it listens on",
} as const;

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
