/**
 * The Unix sockets of storage plugins: those named one by one, and every `<name>.sock` in a directory, where sockets may
 * appear and disappear while the process runs.
 */
import { mkdirSync, readdirSync, watch, type FSWatcher } from "node:fs";
import { join } from "node:path";
import type { CsiSockets } from "../../runtime/ports/csi-sockets.ts";
import { connectUnix } from "../grpc/client.ts";

const suffix = ".sock";
/** Polling interval in milliseconds: not every file system reports changes. */
const scanMs = 2_000;
/** Valid plugin names, here and as a volume's driver. */
const pluginName = /^[A-Za-z0-9][A-Za-z0-9._:/-]*$/;

interface CsiSocketsOptions {
  /** Socket paths by plugin name; these plugins count as present even when the file is missing. */
  readonly named: ReadonlyMap<string, string>;
  /** Created if missing. */
  readonly directory: string;
}

export interface OpenCsiSockets extends CsiSockets {
  close(): void;
}

export function isPluginName(text: string): boolean {
  return pluginName.test(text);
}

/** Throws if the directory cannot be created or read. */
export function openCsiSockets({ named, directory }: CsiSocketsOptions): OpenCsiSockets {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const listeners = new Set<() => void>();
  let names = list();

  function list(): readonly string[] {
    let files: readonly string[] = [];
    try {
      files = readdirSync(directory);
    } catch {
      // The directory was removed, and its plugins with it.
    }
    const found = files.filter((file) => file.endsWith(suffix)).map((file) => file.slice(0, -suffix.length));
    return [...new Set([...named.keys(), ...found.filter(isPluginName)])].sort();
  }

  function scan(): void {
    const next = list();
    if (next.join("\n") === names.join("\n")) return;
    names = next;
    for (const listener of listeners) listener();
  }

  const timer = setInterval(scan, scanMs);
  timer.unref();
  let watcher: FSWatcher | null = null;
  try {
    watcher = watch(directory, { persistent: false }, scan);
    watcher.on("error", () => {});
  } catch {
    // The system is out of watches: polling is enough.
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
