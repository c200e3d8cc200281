/**
 * The code of the packages: the programs (`lib/installation.ts`) and the library's entry points, bundled into JavaScript modules
 * that share chunks. A start then reads a few files instead of hundreds.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type Plugin } from "esbuild";
import { chartFileOf, chartFiles } from "../../cli/chart-files.ts";

export const top: string = fileURLToPath(new URL("../..", import.meta.url));

/** Entry points of the library: the name after `muster/` in an import, and the module. */
export const libraryEntries: Readonly<Record<string, string>> = {
  driver: "library/driver",
  charts: "library/charts",
  control: "library/control",
  json: "library/json",
};

interface BundleOptions {
  readonly outdir: string;
  readonly entries: readonly string[];
  /** Whether packages from `node_modules` become part of the bundle. */
  readonly withPackages: boolean;
  readonly minify: boolean;
}

/** A package has no folder of sources to list: the list is made when it is built. */
const listOfCharts: Plugin = {
  name: "list of charts",
  setup({ onLoad }) {
    onLoad({ filter: /\/cli\/chart-files\.ts$/ }, () => {
      const entries = chartFiles().map(({ file }) => {
        const source = readFileSync(join(top, "machines", file), "utf8");
        const described = JSON.stringify(chartFileOf(file, source));
        return `{ ...${described}, load: () => import(${JSON.stringify(`../machines/${file}`)}) }`;
      });
      return { contents: `export const chartFiles = () => [${entries.join(",\n")}];`, loader: "js" };
    });
  },
};

/** Writes `entry.js` for each entry, their chunks into `lib/`, and source maps. Returns the paths of all inputs, from the top. */
export async function bundleCode({ entries, minify, outdir, withPackages }: BundleOptions): Promise<readonly string[]> {
  const { metafile } = await build({
    absWorkingDir: top,
    entryPoints: Object.fromEntries(entries.map((entry) => [entry, `${entry}.ts`])),
    outdir,
    // lib/installation.ts finds the top of a package one folder above the chunk that it is in.
    chunkNames: "lib/[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node24",
    packages: withPackages ? "bundle" : "external",
    minify,
    sourcemap: !minify,
    legalComments: "none",
    metafile: true,
    logLevel: "error",
    plugins: [listOfCharts],
  });
  return Object.keys(metafile.inputs);
}
