/** `npm run package -- npm`: the npm package, for `npm install --global FILE`. */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildInfo } from "./build-info.ts";
import { programs } from "../../lib/installation.ts";
import { bundleCode, libraryEntries, top } from "./bundle.ts";
import { installedFolders } from "./contents.ts";

interface Manifest {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly [key: string]: unknown;
}

/** The types of the library's entry points, and those that they refer to. */
function writeTypes(stage: string): void {
  const project = join(stage, "tsconfig.json");
  const { compilerOptions } = JSON.parse(readFileSync(join(top, "tsconfig.json"), "utf8")) as {
    readonly compilerOptions: Readonly<Record<string, unknown>>;
  };
  const options = {
    ...compilerOptions,
    noEmit: false,
    declaration: true,
    emitDeclarationOnly: true,
    rewriteRelativeImportExtensions: true,
    rootDir: top,
    outDir: join(stage, "types"),
    typeRoots: [join(top, "node_modules", "@types")],
  };
  const files = Object.values(libraryEntries).map((entry) => join(top, `${entry}.ts`));
  writeFileSync(project, JSON.stringify({ compilerOptions: options, files }));
  execFileSync(join(top, "node_modules", ".bin", "tsc"), ["-p", project], { stdio: ["ignore", 2, 2] });
  rmSync(project);
}

/** The manifest of the checkout, without what only a checkout needs. */
function manifest(): object {
  const own = JSON.parse(readFileSync(join(top, "package.json"), "utf8")) as Manifest;
  const { dependencies, description, engines, license, name, version } = own;
  const entries = Object.entries(libraryEntries).map(([subpath, entry]) => [
    `./${subpath}`,
    { types: `./types/${entry}.d.ts`, default: `./${entry}.js` },
  ]);
  const bin = Object.fromEntries(commands.map((command) => [command, `bin/${command}`]));
  return {
    name,
    version,
    description,
    license,
    type: "module",
    engines,
    bin,
    exports: { ...Object.fromEntries(entries), "./package.json": "./package.json" },
    dependencies,
  };
}

const commands = ["muster", "muster-driver-docker", "muster-driver-exec", "muster-driver-mock", "muster-dataplane-nft"];

/** Returns the path of the file. */
export async function packNpm(out: string): Promise<string> {
  const stage = join(out, "npm");
  rmSync(stage, { recursive: true, force: true });
  mkdirSync(stage, { recursive: true });
  const entries = [...programs, ...Object.values(libraryEntries)];
  await bundleCode({ entries, outdir: stage, withPackages: false, minify: false });
  writeTypes(stage);
  for (const path of [...installedFolders, "bin", "README.md", "LICENSE", "CHANGELOG.md"])
    cpSync(join(top, path), join(stage, path), { recursive: true });
  writeFileSync(join(stage, "package.json"), `${JSON.stringify(manifest(), null, 2)}\n`);
  writeFileSync(join(stage, "build.json"), `${JSON.stringify(buildInfo())}\n`);
  const packed = execFileSync("npm", ["pack", "--silent", "--pack-destination", out], { cwd: stage, encoding: "utf8" });
  const file = join(out, packed.trim());
  rmSync(stage, { recursive: true });
  return file;
}
