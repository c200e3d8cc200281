/** `npm run package -- KIND… [--out DIR]`: builds packages into `dist/`. */
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { top } from "./bundle.ts";

const kinds: Readonly<Record<string, (out: string) => Promise<string>>> = {
  npm: async (out) => (await import("./npm.ts")).packNpm(out),
  debian: async (out) => (await import("./debian.ts")).packDebian(out),
  "single-file": async (out) => (await import("./single-file.ts")).packSingleFile(out),
};

const { positionals, values } = parseArgs({ allowPositionals: true, options: { out: { type: "string" } } });
const unknown = positionals.find((kind) => !Object.hasOwn(kinds, kind));
if (unknown !== undefined || positionals.length === 0) {
  process.stderr.write(`usage: npm run package -- KIND… [--out DIR]; kinds are ${Object.keys(kinds).join(", ")}\n`);
  process.exit(125);
}
const out = resolve(values.out ?? join(top, "dist"));
mkdirSync(out, { recursive: true });
for (const kind of positionals) process.stdout.write(`${await kinds[kind]?.(out)}\n`);
