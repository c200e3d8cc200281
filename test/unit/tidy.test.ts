// The layering of docs/design.md, and tidiness that a linter does not check. Each message says what to do instead.
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";

const top = fileURLToPath(new URL("../..", import.meta.url));
const folders =
  "proto lib machines runtime actors edges linux drivers processes simulation ui cli library tools test bench".split(
    " ",
  );

interface Source {
  readonly path: string;
  readonly text: string;
  /** Paths of this tree, and names of packages. */
  readonly imports: readonly string[];
}

const sources: readonly Source[] = folders.flatMap((folder) =>
  readdirSync(join(top, folder), { recursive: true, encoding: "utf8" })
    .map((file) => join(folder, file))
    .filter((path) => /\.tsx?$/.test(path) && !/^(?:proto\/gen|ui\/gen|ui\/dist)\//.test(path))
    .map((path) => {
      const text = readFileSync(join(top, path), "utf8");
      const imports = [...text.matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g)].map(([, target]) => {
        const name = target as string;
        return name.startsWith(".") ? relative(top, resolve(top, dirname(path), name)) : name;
      });
      return { path, text, imports };
    }),
);

interface Layer {
  /** Such as `edges/`. */
  readonly folder: string;
  /** As the table names them, such as `grpc/`. */
  readonly parts: readonly string[];
  /** Whether imports with these prefixes are allowed; the longest match counts. */
  readonly imports: ReadonlyMap<string, boolean>;
}

const quoted = (text: string): readonly string[] =>
  Array.from(text.matchAll(/`([^`]+)`/g), ([, inside]) => inside as string);

/**
 * The rows of the table in docs/design.md: folders with their allowed imports.
 */
const layers: readonly Layer[] = readFileSync(join(top, "docs/design.md"), "utf8")
  .split("\n")
  .filter((line) => /^\| `[a-z]+\/` \| /.test(line))
  .map((line) => {
    const [folder = "", holds = "", may = ""] = line.slice(2, -2).split(" | ");
    const [allowed = "", refused = ""] = may.split(/, but not |everything but /);
    const every = may.startsWith("everything") ? folders.map((other) => `${other}/`) : [];
    const imports = new Map<string, boolean>([...every, ...quoted(allowed)].map((prefix) => [prefix, true]));
    for (const prefix of quoted(refused)) imports.set(prefix, false);
    const [name = ""] = quoted(folder);
    return { folder: name, parts: quoted(holds), imports: imports.set(name, true) };
  });

/** Packages that only some places may import. */
const packageHomes: Record<string, readonly string[]> = {
  nats: ["runtime/nats/"],
  "@nats-io/jwt": ["runtime/nats/"],
  "@nats-io/nats-core": ["runtime/nats/"],
  "age-encryption": ["runtime/backup/"],
  "prom-client": ["runtime/telemetry/"],
  pino: ["runtime/telemetry/"],
  croner: ["machines/orchestration/jobs/"],
  yaml: ["cli/stack/", "ui/model/cluster/"],
  tweetnacl: ["edges/juju/"],
  ws: ["edges/juju/", "edges/ui/", "library/json.ts", "runtime/nats/"],
  "dns-packet": ["edges/dns/"],
  ajv: ["edges/docker/"],
  "find-my-way": ["edges/docker/"],
  protobufjs: ["proto/"],
  "protobufjs/minimal.js": ["proto/"],
  // The commands that draw the charts are the only others.
  xstate: [
    "machines/",
    "runtime/host.ts",
    "runtime/actor-systems.ts",
    "runtime/observation/",
    "runtime/steps/",
    "actors/orchestration/",
    "cli/chart",
  ],
};

test("folders import only what the layering allows", (t) => {
  for (const source of sources) {
    const layer = layers.find(({ folder }) => source.path.startsWith(folder));
    if (layer === undefined) continue;
    const prefixes = [...layer.imports.keys()].sort((a, b) => b.length - a.length);
    for (const target of source.imports.filter((name) => folders.some((folder) => name.startsWith(`${folder}/`)))) {
      const prefix = prefixes.find((each) => target.startsWith(each));
      t.true(
        prefix !== undefined && layer.imports.get(prefix),
        `${source.path} imports ${target}, which docs/design.md §3 does not allow in ${layer.folder}: pass it in through a port instead`,
      );
    }
  }
  for (const { path, imports } of sources.filter((source) => !/^(?:test|bench)\//.test(source.path))) {
    t.deepEqual(
      imports.filter((name) => /^(?:test|bench)\//.test(name)),
      [],
      `${path} imports a module that only tests may import`,
    );
  }
});

test("no files import each other in a circle", (t) => {
  const importsOf = new Map(sources.map(({ path, imports }) => [path, imports]));
  const done = new Set<string>();
  const visit = (path: string, above: readonly string[]): void => {
    const at = above.indexOf(path);
    t.is(at, -1, `${[...above.slice(Math.max(0, at)), path].join(" imports ")}: move what both need into a third file`);
    if (at >= 0 || done.has(path)) return;
    for (const next of importsOf.get(path) ?? []) visit(next, [...above, path]);
    done.add(path);
  };
  for (const { path } of sources) visit(path, []);
  t.true(done.size > 1_000, "the files are found");
});

test("docs/design.md lists the existing folders", (t) => {
  t.deepEqual(
    layers.map(({ folder }) => folder),
    folders.map((folder) => `${folder}/`).filter((folder) => folder !== "bench/"),
    "each folder of the sources has a row",
  );
  for (const { folder, parts } of layers.filter((layer) =>
    /^(?:lib|machines|runtime|actors|edges|linux|drivers)/.test(layer.folder),
  )) {
    const within = sources.flatMap(({ path }) =>
      path.startsWith(folder) ? [path.slice(folder.length).split("/")] : [],
    );
    const there = [...new Set(within.flatMap(([part, ...rest]) => (rest.length > 0 ? [`${part}/`] : [])))];
    const missing = there.filter((name) => !parts.includes(name));
    const gone = parts.filter(
      (name) => /^[a-z-]+\/$/.test(name) && !there.includes(name) && !folders.includes(name.slice(0, -1)),
    );
    t.deepEqual({ missing, gone }, { missing: [], gone: [] }, `the row of ${folder}`);
  }
});

test("each wrapped package is imported only in its own folder", (t) => {
  for (const source of sources.filter(({ path }) => !path.startsWith("test/") && !path.startsWith("bench/"))) {
    for (const [name, homes] of Object.entries(packageHomes)) {
      t.false(
        source.imports.includes(name) && !homes.some((home) => source.path.startsWith(home)),
        `${source.path} imports ${name}, which only ${homes.join(", ")} may import: use that instead`,
      );
    }
  }
});

/** Calls that write or rename files themselves, and why they may. */
const fileWriters: Record<string, string> = {
  "runtime/system/whole-file.ts": "the one place",
  "tools/write-charts.ts": "generates pages of this tree",
  "tools/write-reference.ts": "generates pages of this tree",
  "processes/earlier-state.ts": "renames a folder",
  "processes/move-own-nats.ts": "renames a folder",
  "processes/restore.ts": "renames a folder",
  "processes/force-new-cluster.ts": "renames folders",
  "drivers/exec/cgroups.ts": "files of the kernel",
  "linux/client-cgroups.ts": "files of the kernel",
  "linux/task-network/tools.ts": "files of the kernel",
  "edges/plugin/server/log.ts": "standard error",
  "processes/nodes-nats-identity.ts": "an unnamed file in memory, which nats-server reads",
  "linux/nft.ts": "an unnamed file, which nft reads",
  "linux/output/collector.ts": "rotates what it has appended",
  "linux/task-home/memory-files.ts": "new files in memory, in a directory that a task sees once all are whole",
  "proto/generate.ts": "generates code of this tree",
  "tools/bundle-ui.ts": "generates code of this tree",
  "tools/package/debian.ts": "builds in a folder of its own",
  "tools/package/npm.ts": "builds in a folder of its own",
  "tools/package/oci.ts": "builds in a folder of its own",
  "tools/package/release.ts": "builds in a folder of its own",
  "tools/package/single-file.ts": "builds in a folder of its own",
  "tools/package/write-caches.ts": "builds in a folder of its own",
};

test("only runtime/system/whole-file.ts writes files", (t) => {
  const calls =
    /\b(?:writeFileSync|writeFile|writeSync|renameSync|rename|appendFileSync|appendFile)\b[^;]*?from "node:fs/;
  const direct = /\bfile\.writeFile\(/;
  for (const { path, text } of sources.filter((source) => !/^(?:test|bench)\//.test(source.path))) {
    const imports = text.split("\n\n", 3).join("\n");
    const isWriter = calls.test(imports) || direct.test(text);
    t.is(
      isWriter,
      fileWriters[path] !== undefined,
      `${path}: replace files with replaceFile and append with appendAllSync, which a full disk cannot truncate; or list the exception here`,
    );
  }
});

test("only runtime/subjects.ts writes subjects", (t) => {
  for (const { path, text } of sources.filter(({ path }) => !path.startsWith("test/"))) {
    if (path === "runtime/subjects.ts") continue;
    t.false(
      /["`]muster\.v1\.(svc|cmd|log|beat|out|inspect)\b/.test(text),
      `${path} writes a subject: add a builder to runtime/subjects.ts`,
    );
  }
});

test("every source file is used by another", (t) => {
  const isOfTests = (path: string): boolean => /^(?:test|bench)\//.test(path);
  const imported = new Set(sources.filter(({ path }) => !isOfTests(path)).flatMap((source) => source.imports));
  const entries =
    /^(cli\/main\.ts|library\/|ui\/main\.tsx|ui\/door\.ts|ui\/report\/main\.ts|tools\/|test\/|bench\/|proto\/generate\.ts|proto\/page-codec\.ts|(?:drivers|linux)\/[^/]+\/main\.ts|runtime\/sim\/|simulation\/(?:world|rehearsal\/process)\.ts)/;
  for (const { path } of sources) {
    t.true(imported.has(path) || entries.test(path), `${path} is imported only by tests: delete it or use it`);
  }
});

test("a name is exported only if another file uses it", (t) => {
  const users = new Map<string, number>();
  for (const { text } of sources)
    for (const word of new Set(text.match(/\b[A-Za-z_]\w*\b/g))) users.set(word, (users.get(word) ?? 0) + 1);
  const exported = /^export (?:async |abstract )?(?:const|let|function\*?|class|interface|type|enum) (\w+)/gm;
  const checked = /^(?:proto|machines|actors|edges|lib|linux|drivers|ui|runtime\/recording|cli\/inspect)\//;
  for (const { path, text } of sources.filter((source) => checked.test(source.path)))
    for (const [, name = ""] of text.matchAll(exported))
      t.not(users.get(name), 1, `${path} exports ${name}, which no other file uses: remove export, or the name`);
});

test("a label of the simulation has one meaning, explained in its file's header", (t) => {
  const simulation = sources.filter(({ path }) => /^(?:simulation|test\/sim)\//.test(path));
  const explained = new Map<string, string>();
  for (const { path, text } of simulation) {
    for (const [, label] of text.matchAll(/^ \* ([SL]\d+): /gm)) {
      const other = explained.get(label as string);
      t.is(other, undefined, `${label} is explained in ${path} and in ${other}: choose an unused number`);
      explained.set(label as string, path);
    }
  }
  for (const { path, text } of simulation) {
    for (const [, label] of text.matchAll(/["`]([SL]\d+): /g)) {
      t.true(
        explained.has(label as string),
        `${path} reports ${label}, which no file header under simulation/ explains`,
      );
    }
  }
});

test("no unfinished code and no focused test is committed", (t) => {
  const words = new RegExp(
    `\\b(${["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"].join("|")})\\b|\\btest\\.on` + "ly\\b",
  );
  for (const { path, text } of sources) {
    if (path.startsWith("test/unit/tidy")) continue;
    t.false(words.test(text), `${path} has an unfinished mark or a focused test: finish it, or open an issue for it`);
  }
});
