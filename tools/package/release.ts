/**
 * `npm run package -- release`: all packages of one commit, their bill of materials and their checksums, in one folder. The same
 * commit, Node and npm give the same bytes.
 */
import { createHash } from "node:crypto";
import { createReadStream, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { pipeline } from "node:stream/promises";
import { join } from "node:path";
import { UserError } from "../../lib/user-error.ts";
import { version } from "../../lib/version.ts";
import { buildInfo } from "./build-info.ts";
import { packDebian } from "./debian.ts";
import { natsServer } from "./nats-server.ts";
import { packNpm } from "./npm.ts";
import { packOci } from "./oci.ts";
import { billOfMaterials } from "./sbom.ts";
import { packSingleFile } from "./single-file.ts";

async function sumOf(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}

/**
 * Returns the path of the checksums, which `sha256sum --check` reads. `out` is emptied first. Rejects with UserError if the checkout
 * has changes or is none, unless the release is a draft.
 */
export async function packRelease(out: string, { isDraft }: { readonly isDraft: boolean }): Promise<string> {
  const build = buildInfo();
  if (!isDraft && (build === null || build.changes)) {
    const why = build === null ? "its commit is not known" : "the checkout has changes";
    throw new UserError(`a release is built from a commit, but ${why}: commit first, or build a --draft`);
  }
  const folder = join(out, "release");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const platform = `linux-${process.arch}`;
  const single = await packSingleFile(folder);
  await packDebian(folder, single);
  await packNpm(folder);
  const { parts: debian } = await packOci(folder, single);
  renameSync(single, join(folder, `muster-${version}-${platform}`));
  renameSync(join(folder, "muster-LICENSES.txt"), join(folder, `muster-${version}-${platform}.LICENSES.txt`));
  const nats = await natsServer();
  const parts = [
    {
      name: "nats-server",
      version: nats.version,
      purl: `pkg:golang/github.com/nats-io/nats-server/v2@v${nats.version}`,
      license: "Apache-2.0",
    },
    ...debian,
  ];
  writeFileSync(join(folder, `muster-${version}.cdx.json`), billOfMaterials(build?.date ?? null, parts));

  const names = readdirSync(folder).toSorted();
  const sums: string[] = [];
  for (const name of names) sums.push(`${await sumOf(join(folder, name))}  ${name}\n`);
  const file = join(folder, "SHA256SUMS");
  writeFileSync(file, sums.join(""));
  return file;
}
