/** A folder of backups that a manager takes by itself: `muster-CLUSTER-TIME.backup`. Files of other names are left alone. */
import { mkdir, readdir, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { BackupPart } from "../../proto/gen/messages.ts";
import type { BackupStore, KeptBackup } from "../ports/backup-store.ts";
import { replaceFile } from "../system/whole-file.ts";
import type { Wrapping } from "./envelope.ts";
import { backupFile } from "./format.ts";

/** Time as in ISO 8601's basic format. */
const namePattern = /^muster-([a-z0-9]+)-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z\.backup$/;
/** Left by a manager that was killed while it wrote. */
const unfinished = /^muster-[a-z0-9]+-\d{8}T\d{6}Z\.backup\.next$/;

export class BackupFolder implements BackupStore {
  readonly #path: string;
  readonly #wrapping: Wrapping;

  constructor(path: string, wrapping: Wrapping) {
    this.#path = path;
    this.#wrapping = wrapping;
  }

  async list(clusterId: string): Promise<readonly KeptBackup[]> {
    await mkdir(this.#path, { recursive: true, mode: 0o700 });
    const names = await readdir(this.#path);
    const found = names.flatMap((name) => {
      const [, cluster, year, month, day, hour, minute, second] = namePattern.exec(name) ?? [];
      if (cluster !== clusterId) return [];
      return [{ name, atMs: Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`) }];
    });
    return found.toSorted((a, b) => b.atMs - a.atMs);
  }

  async write(clusterId: string, atMs: number, parts: AsyncIterable<BackupPart>): Promise<number> {
    await mkdir(this.#path, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.#path)) if (unfinished.test(name)) await rm(join(this.#path, name));
    const time = new Date(atMs).toISOString().replaceAll(/[-:]|\.\d+/g, "");
    async function* encoded(): AsyncGenerator<Uint8Array> {
      for await (const part of parts) yield BackupPart.encode(part);
    }
    try {
      return await replaceFile(
        join(this.#path, `muster-${clusterId}-${time}.backup`),
        backupFile(encoded(), this.#wrapping),
      );
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
      const { bavail, bsize } = await statfs(this.#path);
      throw new Error(`the disk is full: ${((bavail * bsize) / 2 ** 20).toFixed(1)} MiB are free`, { cause: error });
    }
  }

  remove(name: string): Promise<void> {
    return rm(join(this.#path, name), { force: true });
  }
}
