/** The storage plugins of a process: those named by its flags, and those in `csi/` in its data dir. */
import { join } from "node:path";
import { openCsiSockets, type OpenCsiSockets } from "../edges/csi/sockets.ts";
import { cannotWrite } from "./data-dir.ts";

/** Socket paths by plugin name. */
export type CsiSocketPaths = ReadonlyMap<string, string>;

/** Throws UserError when the directory cannot be used. */
export function openCsi(dataDir: string, named: CsiSocketPaths): OpenCsiSockets {
  const directory = join(dataDir, "csi");
  try {
    return openCsiSockets({ named, directory });
  } catch (error) {
    throw cannotWrite(directory, error);
  }
}
