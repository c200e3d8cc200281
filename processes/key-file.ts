/**
 * The manager's key file in its data dir, and the migration from earlier versions, which kept the TLS key and certificate in
 * separate files.
 */
import type { KeyFileDisk, Vault } from "../runtime/store/vault.ts";
import { UserError } from "../lib/user-error.ts";
import type { DataDir } from "./data-dir.ts";

/** The file holds a KeyFile message in base64. */
const name = "keys";

export function keyFileDisk(dataDir: DataDir): KeyFileDisk {
  return {
    read: () => {
      const text = dataDir.read(name);
      return text === null ? null : new Uint8Array(Buffer.from(text, "base64"));
    },
    write: (data) => dataDir.write(name, `${Buffer.from(data).toString("base64")}\n`),
  };
}

const keyStart = "-----BEGIN PRIVATE KEY-----";

/** Migrates the files of an earlier version, which are removed once the key file is saved. */
export function adoptIdentity(dataDir: DataDir, vault: Vault): void {
  const both = dataDir.read("node.pem");
  const at = both?.indexOf(keyStart) ?? -1;
  const [nodeKey, nodeCertificate] =
    both !== null && at > 0
      ? [both.slice(at), both.slice(0, at)]
      : [dataDir.read("node.key"), dataDir.read("node.crt")];
  if (nodeKey !== null && nodeCertificate !== null && vault.fields.nodeKey === "")
    vault.update({ nodeKey, nodeCertificate });
  for (const file of ["node.pem", "node.key", "node.crt"]) dataDir.remove(file);
}

/** A damaged file is never overwritten, so that a copy can be restored. */
export function unusable(dataDir: DataDir, error: unknown): UserError {
  return new UserError(
    `${(error as Error).message}: restore ${dataDir.path}/${name} from a copy, or remove the data dir and join again`,
    { cause: error },
  );
}
