/** `npm run package -- single-file`: one executable that holds Node, the code and the files, and starts from V8's code cache. */
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { build, transform } from "esbuild";
import { buildInfo } from "./build-info.ts";
import { programs } from "../../lib/installation.ts";
import { licences } from "../licences.ts";
import { bundleCode, top } from "./bundle.ts";
import { filesBelow, installedFolders } from "./contents.ts";

/** As in bin/muster. V8 rejects a code cache that was made with other flags. */
const nodeFlags = ["--max-semi-space-size=4", "--heap-growing-percent=40", "--disable-warning=ExperimentalWarning"];
/**
 * Flags with which the same scripts give the same code caches. Hashes of strings are in them. So are bytes between objects, which
 * are zero until a collection of the old heap returns used memory: at this initial size, in MB, there is none.
 */
const sameBytesFlags = ["--random-seed=1", "--initial-heap-size=1024"];
/** In every Node executable: https://nodejs.org/api/single-executable-applications.html */
const fuse = "NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2";

/** Modules become scripts, which have code caches. */
async function writeScripts(from: string, to: string): Promise<void> {
  for (const file of filesBelow(from)) {
    const { code } = await transform(readFileSync(join(from, file), "utf8"), {
      format: "cjs",
      platform: "node",
      target: "node24",
      minify: true,
      supported: { "dynamic-import": false },
      define: { "import.meta.url": JSON.stringify(`file:///muster/${file}`) },
    });
    mkdirSync(dirname(join(to, file)), { recursive: true });
    writeFileSync(join(to, file), code);
  }
}

/** Returns the path of the executable; the licences of the packages in it are beside it. */
export async function packSingleFile(out: string): Promise<string> {
  const work = join(out, "single-file");
  const [modules, code, cache] = ["modules", "code", "cache"].map((name) => join(work, name)) as [
    string,
    string,
    string,
  ];
  rmSync(work, { recursive: true, force: true });
  const inputs = await bundleCode({ entries: programs, outdir: modules, withPackages: true, minify: true });
  await writeScripts(modules, code);
  const node = join(top, "node_modules", ".bin", "node");
  const warmer = join(top, "tools", "package", "write-caches.ts");
  execFileSync(node, [...nodeFlags, ...sameBytesFlags, warmer, code, cache], { stdio: ["ignore", "ignore", 2] });

  const main = join(work, "main.cjs");
  await build({
    absWorkingDir: top,
    entryPoints: ["tools/package/single-file-main.ts"],
    outfile: main,
    bundle: true,
    minify: true,
    platform: "node",
    format: "cjs",
    target: "node24",
    define: { "import.meta.url": '"file:///muster/main.js"' },
    logLevel: "error",
  });
  const contents = installedFolders.flatMap((path) =>
    statSync(join(top, path)).isFile() ? [path] : filesBelow(join(top, path)).map((file) => `${path}/${file}`),
  );
  const [files, info] = ["files.json", "build.json"].map((name) => join(work, name)) as [string, string];
  writeFileSync(files, JSON.stringify(contents));
  writeFileSync(info, JSON.stringify(buildInfo()));
  const assets = Object.fromEntries([
    ["files.json", files],
    ["build.json", info],
    ...contents.map((path) => [path, join(top, path)]),
    ...filesBelow(code).map((file) => [`code/${file}`, join(code, file)]),
    ...filesBelow(cache).map((file) => [`cache/${file}`, join(cache, file)]),
  ]);
  const [blob, config] = [join(work, "blob"), join(work, "config.json")];
  // The blob contains the path of the main module as it is written here.
  const settings = {
    main: relative(work, main),
    output: blob,
    disableExperimentalSEAWarning: true,
    execArgv: nodeFlags,
    // Programs that it starts get further flags as --node-options (lib/installation.ts).
    execArgvExtension: "cli",
    assets,
  };
  writeFileSync(config, JSON.stringify(settings));
  execFileSync(node, ["--experimental-sea-config", config], { cwd: work, stdio: ["ignore", "ignore", 2] });

  const executable = join(out, "muster");
  copyFileSync(node, executable);
  chmodSync(executable, 0o755);
  const postject = createRequire(import.meta.url)("postject") as {
    inject(file: string, name: string, data: Buffer, options: { readonly sentinelFuse: string }): Promise<void>;
  };
  await postject.inject(executable, "NODE_SEA_BLOB", readFileSync(blob), { sentinelFuse: fuse });
  writeFileSync(join(out, "muster-LICENSES.txt"), licences(inputs));
  rmSync(work, { recursive: true });
  return executable;
}
