/** `npm run package -- KIND… [--out DIR] [--draft]`: builds packages into `dist/`. */
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { UserError } from "../../lib/user-error.ts";
import { top } from "./bundle.ts";

const kinds: Readonly<Record<string, (out: string) => Promise<string>>> = {
  npm: async (out) => (await import("./npm.ts")).packNpm(out),
  debian: async (out) => {
    const [{ packDebian }, { packSingleFile }] = await Promise.all([import("./debian.ts"), import("./single-file.ts")]);
    return packDebian(out, await packSingleFile(out));
  },
  "single-file": async (out) => (await import("./single-file.ts")).packSingleFile(out),
  oci: async (out) => {
    const [{ packOci }, { packSingleFile }] = await Promise.all([import("./oci.ts"), import("./single-file.ts")]);
    return (await packOci(out, await packSingleFile(out))).file;
  },
  "image-base": async (out) => (await import("./oci.ts")).downloadImageBase(out),
  release: async (out) => (await import("./release.ts")).packRelease(out, { isDraft: values.draft === true }),
};

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    out: { type: "string" },
    /** A release of a checkout with changes. */
    draft: { type: "boolean" },
  },
});
const unknown = positionals.find((kind) => !Object.hasOwn(kinds, kind));
if (unknown !== undefined || positionals.length === 0) {
  process.stderr.write(
    `usage: npm run package -- KIND… [--out DIR] [--draft]; kinds are ${Object.keys(kinds).join(", ")}\n`,
  );
  process.exit(125);
}
// Packages contain the modes of files and folders that are made here.
process.umask(0o022);
const out = resolve(values.out ?? join(top, "dist"));
mkdirSync(out, { recursive: true });
try {
  for (const kind of positionals) process.stdout.write(`${await kinds[kind]?.(out)}\n`);
} catch (error) {
  if (!(error instanceof UserError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
