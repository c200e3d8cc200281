/**
 * Where storage plugins mount volumes on this node:
 *
 *   <directory>/<volume id>/   staged      the plugin's staging path, once per node
 *                              published   the path that tasks mount; created by the plugin
 *
 * Directories are removed only if empty: their contents are user data.
 */
import { mkdir, rmdir, unlink } from "node:fs/promises";
import { join } from "node:path";
import { isSubjectToken } from "../../runtime/ids.ts";

interface Places {
  readonly staging: string;
  readonly target: string;
}

interface VolumeDirectory {
  make(volumeId: string): Promise<Places>;
  remove(volumeId: string): Promise<void>;
}

/** `directory` is an absolute path. */
export function volumeDirectory(directory: string): VolumeDirectory {
  const placesOf = (volumeId: string): Places => {
    if (!isSubjectToken(volumeId)) throw new Error(`invalid volume id "${volumeId}"`);
    const home = join(directory, volumeId);
    return { staging: join(home, "staged"), target: join(home, "published") };
  };
  return {
    async make(volumeId) {
      const places = placesOf(volumeId);
      // Tasks of other users must be able to traverse to the published path.
      await mkdir(directory, { recursive: true, mode: 0o711 });
      await mkdir(places.staging, { recursive: true, mode: 0o711 });
      return places;
    },
    async remove(volumeId) {
      const { staging, target } = placesOf(volumeId);
      // Block volumes are published as files, others as directories. Files that a plugin left behind are kept.
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
