/**
 * The Unix sockets of storage plugins: those that were named one by one, and all `<name>.sock` of a directory, which may
 * come and go while the process runs.
 */
import { mkdirSync, readdirSync, watch, type FSWatcher } from "node:fs";
import { join } from "node:path";
import type { CsiSockets } from "../../runtime/csi-sockets.ts";
import { connectUnix } from "../grpc/client.ts";

const suffix = ".sock";
/** In milliseconds: not every file system tells of changes. */
const lookEveryMs = 2_000;
/** What a plugin may be called, here and as the driver of a volume. */
const pluginName = /^[A-Za-z0-9][A-Za-z0-9._:/-]*$/;

export interface CsiSocketsOptions {
  /** Paths of sockets by the plugin's name; they count as there whether or not the file is. */
  readonly named: ReadonlyMap<string, string>;
  /** Made when it is missing. */
  readonly directory: string;
}

export interface OpenCsiSockets extends CsiSockets {
  close(): void;
}

export function isPluginName(text: string): boolean {
  return pluginName.test(text);
}

/** Throws when the directory can be neither made nor read. */
export function openCsiSockets({ named, directory }: CsiSocketsOptions): OpenCsiSockets {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const listeners = new Set<() => void>();
  let names = list();

  function list(): readonly string[] {
    let files: readonly string[] = [];
    try {
      files = readdirSync(directory);
    } catch {
      // It was removed: its plugins with it.
    }
    const found = files.filter((file) => file.endsWith(suffix)).map((file) => file.slice(0, -suffix.length));
    return [...new Set([...named.keys(), ...found.filter(isPluginName)])].sort();
  }

  function look(): void {
    const next = list();
    if (next.join("\n") === names.join("\n")) return;
    names = next;
    for (const listener of listeners) listener();
  }

  const timer = setInterval(look, lookEveryMs);
  timer.unref();
  let watcher: FSWatcher | null = null;
  try {
    watcher = watch(directory, { persistent: false }, look);
    watcher.on("error", () => {});
  } catch {
    // No more watches on this machine: looking now and then is enough.
  }
  return {
    names: () => names,
    onChange(listener) {
      listeners.add(listener);
      return { unsubscribe: () => listeners.delete(listener) };
    },
    dial: (name) => connectUnix(named.get(name) ?? join(directory, name + suffix)),
    close() {
      clearInterval(timer);
      watcher?.close();
      listeners.clear();
    },
  };
}
