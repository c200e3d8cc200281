/**
 * Where storage plugins mount volumes on this node:
 *
 *   <directory>/<volume id>/   staged      the plugin's own, once for the node
 *                              published   what tasks see; made by the plugin
 *
 * Nothing in here is ever removed with what is in it: that would be somebody's data.
 */
import { mkdir, rmdir, unlink } from "node:fs/promises";
import { join } from "node:path";
import { isSubjectToken } from "../../runtime/ids.ts";

export interface Places {
  readonly staging: string;
  readonly target: string;
}

export interface VolumeDirectory {
  make(volumeId: string): Promise<Places>;
  remove(volumeId: string): Promise<void>;
}

/** `directory`: absolute. */
export function volumeDirectory(directory: string): VolumeDirectory {
  const placesOf = (volumeId: string): Places => {
    if (!isSubjectToken(volumeId)) throw new Error(`'${volumeId}' is not the id of a volume`);
    const home = join(directory, volumeId);
    return { staging: join(home, "staged"), target: join(home, "published") };
  };
  return {
    async make(volumeId) {
      const places = placesOf(volumeId);
      // Tasks of other users pass through to what is published.
      await mkdir(directory, { recursive: true, mode: 0o711 });
      await mkdir(places.staging, { recursive: true, mode: 0o711 });
      return places;
    },
    async remove(volumeId) {
      const { staging, target } = placesOf(volumeId);
      // A block volume was published as a file, others as directories; what a plugin has left in them stays.
      for (const path of [target, staging, join(directory, volumeId)]) {
        await rmdir(path).catch(ignoreLeft);
      }
      await unlink(target).catch(ignoreLeft);
      await rmdir(join(directory, volumeId)).catch(ignoreLeft);
    },
  };
}

function ignoreLeft(error: unknown): void {
  const code = (error as NodeJS.ErrnoException).code ?? "";
  if (!["ENOENT", "ENOTDIR", "ENOTEMPTY", "EBUSY", "EISDIR", "EPERM"].includes(code)) throw error;
}
