// The layering of docs/design.md, and the tidiness that a linter does not see. Each message says what to do instead.
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";

const top = fileURLToPath(new URL("../..", import.meta.url));
const folders = ["proto", "machines", "runtime", "actors", "edges", "drivers", "cli", "test", "bench"];

interface Source {
  readonly path: string;
  readonly text: string;
  /** Paths of this tree, and names of packages. */
  readonly imports: readonly string[];
}

const sources: readonly Source[] = folders.flatMap((folder) =>
  readdirSync(join(top, folder), { recursive: true, encoding: "utf8" })
    .map((file) => join(folder, file))
    .filter((path) => path.endsWith(".ts") && !path.startsWith("proto/gen/"))
    .map((path) => {
      const text = readFileSync(join(top, path), "utf8");
      const imports = [...text.matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g)].map(([, target]) => {
        const name = target as string;
        return name.startsWith(".") ? relative(top, resolve(top, dirname(path), name)) : name;
      });
      return { path, text, imports };
    }),
);

/** Who may import whom, by the folder of the importer; a longer prefix wins. Tests, benchmarks and cli may import all but tests. */
const mayImport: Record<string, readonly string[]> = {
  "proto/": ["proto/"],
  "machines/": ["machines/", "proto/", "runtime/assert.ts", "runtime/template/"],
  "runtime/": ["runtime/", "proto/"],
  "actors/": ["actors/", "machines/", "proto/", "runtime/"],
  "edges/": ["edges/", "proto/", "runtime/"],
  "drivers/": ["drivers/", "edges/plugin", "edges/dataplane", "proto/", "runtime/", "actors/agent/agent-ports.ts"],
};

/** Packages that only one place may know. */
const packageHomes: Record<string, string> = {
  nats: "runtime/nats/",
  "prom-client": "runtime/telemetry/",
  pino: "runtime/telemetry/",
  croner: "machines/orchestration/jobs/",
  yaml: "cli/stack/",
  ws: "edges/juju/",
  "dns-packet": "edges/dns/",
};

test("folders import only what the layering allows", (t) => {
  for (const source of sources) {
    const layer = Object.keys(mayImport).find((prefix) => source.path.startsWith(prefix));
    if (layer === undefined) continue;
    const allowed = mayImport[layer] as readonly string[];
    for (const target of source.imports.filter((name) => folders.some((folder) => name.startsWith(`${folder}/`)))) {
      t.true(
        allowed.some((prefix) => target.startsWith(prefix)),
        `${source.path} imports ${target}: a file in ${layer} may import only ${allowed.join(", ")}; hand the thing in through a port instead`,
      );
    }
  }
});

test("each wrapped package is imported in its own folder only", (t) => {
  for (const source of sources.filter(({ path }) => !path.startsWith("test/") && !path.startsWith("bench/"))) {
    for (const [name, home] of Object.entries(packageHomes)) {
      t.false(
        source.imports.includes(name) && !source.path.startsWith(home),
        `${source.path} imports ${name}: only ${home} may; use the port that it implements`,
      );
    }
  }
});

test("subjects are written in runtime/subjects.ts only", (t) => {
  for (const { path, text } of sources.filter(({ path }) => !path.startsWith("test/"))) {
    if (path === "runtime/subjects.ts") continue;
    t.false(
      /["`]muster\.v1\.(svc|cmd|log|beat|out|inspect)\b/.test(text),
      `${path} writes a subject: add a builder to runtime/subjects.ts`,
    );
  }
});

test("every source file is used by another", (t) => {
  const imported = new Set(sources.flatMap((source) => source.imports));
  const entries =
    /^(cli\/(main|setup|write-charts|write-reference)\.|test\/|bench\/|proto\/generate\.ts|drivers\/[^/]+\/main\.ts)/;
  for (const { path } of sources) {
    t.true(imported.has(path) || entries.test(path), `${path} is imported by nobody: delete it or use it`);
  }
});

test("a label of the simulation means one thing, and its file's head says which", (t) => {
  const simulation = sources.filter(({ path }) => path.startsWith("test/sim/"));
  const explained = new Map<string, string>();
  for (const { path, text } of simulation) {
    for (const [, label] of text.matchAll(/^ \* ([SL]\d+): /gm)) {
      const other = explained.get(label as string);
      t.is(other, undefined, `${label} is explained in ${path} and in ${other}: take a number that is free`);
      explained.set(label as string, path);
    }
  }
  for (const { path, text } of simulation) {
    for (const [, label] of text.matchAll(/["`]([SL]\d+): /g)) {
      t.true(explained.has(label as string), `${path} reports ${label}, which no file's head under test/sim explains`);
    }
  }
});

test("nothing unfinished and no focused test is committed", (t) => {
  const words = new RegExp(
    `\\b(${["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"].join("|")})\\b|\\btest\\.on` + "ly\\b",
  );
  for (const { path, text } of sources) {
    if (path.startsWith("test/unit/tidy")) continue;
    t.false(words.test(text), `${path} holds an unfinished mark or a focused test: finish it, or open an issue for it`);
  }
});
