// The claims of docs/ about this tree are true: the files that they name, the tests in parity, the metrics.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { peers } from "../interop/go/peers.ts";

const top = fileURLToPath(new URL("../..", import.meta.url));
const read = (path: string): string => readFileSync(join(top, path), "utf8");
const markdownIn = (folder: string): readonly string[] =>
  readdirSync(join(top, folder))
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name));

/** Pages about the current tree. References describe other systems; decisions describe their own time. */
const pages = ["README.md", "CONTRIBUTING.md", ...markdownIn("docs")];
/** Pages whose links are checked. */
const linking = [...pages, ...markdownIn("docs/adr"), ...markdownIn("docs/machines")];

/** Text in backticks, except code blocks. */
function quoted(text: string): readonly string[] {
  const prose = text.replaceAll(/^( *)```[^\n]*\n.*?^\1```$/gms, "");
  return Array.from(prose.matchAll(/`([^`\n]+)`/g), ([, inside]) => inside as string);
}

const folders = readdirSync(top, { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && /^[a-z]/.test(entry.name) && entry.name !== "node_modules")
  .map(({ name }) => name);
const isOfThisTree = new RegExp(`^(?:${folders.join("|")})/[\\w./*-]*$`);

/** A `*` matches any part of a name. */
function isThere(path: string): boolean {
  if (!path.includes("*")) return existsSync(join(top, path));
  const pattern = new RegExp(`^${basename(path).replaceAll(".", "\\.").replaceAll("*", "[^/]*")}$`);
  const folder = join(top, dirname(path));
  return existsSync(folder) && readdirSync(folder).some((name) => pattern.test(name));
}

function basename(path: string): string {
  return path.replace(/\/$/, "").split("/").at(-1) ?? "";
}

test("each file that a page names exists", (t) => {
  /** Files that a page makes its reader create. */
  const made = new Set([
    "drivers/shell/main.ts",
    "simulation/invariants/homes.ts",
    "test/sim/scenarios/all-agents-killed.yaml",
    "test/unit/sim-invariants-homes.test.ts",
  ]);
  let count = 0;
  for (const page of pages) {
    for (const path of quoted(read(page)).filter((each) => isOfThisTree.test(each) && !made.has(each))) {
      count += 1;
      t.true(isThere(path), `${page} names ${path}, which does not exist: correct the page`);
    }
  }
  t.true(count > 50, "too few were found");
});

test("each npm script that a page names exists", (t) => {
  const { scripts } = JSON.parse(read("package.json")) as { readonly scripts: Readonly<Record<string, string>> };
  let count = 0;
  for (const page of pages) {
    for (const [, name = ""] of read(page).matchAll(/\bnpm run (?:--silent )?([a-z][a-z-]*)/g)) {
      count += 1;
      t.true(name in scripts, `${page} names the npm script ${name}, which package.json lacks: correct the page`);
    }
  }
  t.true(count > 20, "too few were found");
});

test("each test that parity names exists, and each of its rows says where it is tested", (t) => {
  const lines = read("docs/parity.md").split("\n");
  for (const line of lines.filter((each) => each.startsWith("| "))) {
    const cells = line.slice(2, -2).split(" | ");
    const named = quoted(cells.at(-1) ?? "").filter((each) => /^(?:unit|cluster|interop|sim|simulation)\//.test(each));
    for (const name of named) {
      const files = [`test/${name}.test.ts`, `test/${name}.ts`, `test/${name}`, name];
      t.true(
        files.some((file) => existsSync(join(top, file))),
        `docs/parity.md names the test ${name}, which does not exist`,
      );
    }
    const isHead = /tested in$/i.test(cells.at(-1) ?? "");
    const says = named.length > 0 || cells.at(-1) === "-" || /\b[SL]\d+|simulation/.test(cells.at(-1) ?? "");
    t.true(isHead || says, `docs/parity.md: this row names no test: ${line}`);
  }
});

test("each weakness marked in the reference has a row of parity with its section number", (t) => {
  const marked = new Map<string, number>();
  let section = "";
  for (const line of read("docs/reference/swarm-manager-semantics.md").split("\n")) {
    section = /^#+ (\d+(?:\.\d+)?)\.? /.exec(line)?.[1] ?? section;
    const marks = section === "" ? 0 : line.split("[B]").length - 1;
    if (marks > 0) marked.set(section, (marked.get(section) ?? 0) + marks);
  }
  const rows = read("docs/parity.md")
    .split("\n")
    .filter((line) => line.startsWith("| "));
  const listed = Map.groupBy(
    rows.flatMap((row) => Array.from(row.matchAll(/\[B §([\d.]+)\]/g), ([, number]) => number as string)),
    (number) => number,
  );
  for (const [number, marks] of marked) {
    const count = listed.get(number)?.length ?? 0;
    t.true(
      count >= marks,
      `docs/parity.md has ${count} rows for ${marks} marks of §${number}: state what is done about each`,
    );
  }
  for (const number of listed.keys())
    t.true(marked.has(number), `docs/parity.md: the reference marks nothing in §${number}`);
  t.true(marked.size > 20, "too few were found");
});

test("each link to a file of the tree leads to an existing file and heading", (t) => {
  const anchorsOf = (path: string): ReadonlySet<string> => {
    const headings = read(path).matchAll(/^#+ (.+)$/gm);
    return new Set(
      Array.from(headings, ([, heading]) =>
        (heading as string)
          .toLowerCase()
          .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
          .trim()
          .replaceAll(/\s/g, "-"),
      ),
    );
  };
  let count = 0;
  for (const page of linking) {
    for (const [, target = ""] of read(page).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      const [path = "", anchor] = target.split("#");
      const file = path === "" ? page : resolve("/", dirname(page), path).slice(1);
      count += 1;
      t.true(existsSync(join(top, file)), `${page} links to ${target}, which does not exist`);
      if (anchor !== undefined && file.endsWith(".md") && existsSync(join(top, file)))
        t.true(anchorsOf(file).has(anchor), `${page} links to ${target}: ${file} has no such heading`);
    }
  }
  t.true(count > 100, "too few were found");
});

test("docs/observability.md lists every exported metric, and no other", (t) => {
  const written = new Map<string, string>();
  for (const folder of ["actors", "cli", "drivers", "edges", "lib", "linux", "machines", "processes", "runtime"]) {
    for (const file of readdirSync(join(top, folder), { recursive: true, encoding: "utf8" })) {
      if (!file.endsWith(".ts")) continue;
      const path = join(folder, file);
      for (const [, name] of read(path).matchAll(/"(muster_[a-z0-9_]+[a-z0-9])"/g)) written.set(name as string, path);
    }
  }
  const listed = new Set(
    quoted(read("docs/observability.md")).flatMap((each) => {
      const [, name] = /^(muster_[a-z0-9_]+[a-z0-9])(?:\{[a-z,]+\})?$/.exec(each) ?? [];
      return name === undefined ? [] : [name];
    }),
  );
  for (const [name, path] of written)
    t.true(listed.has(name), `${path} writes ${name}: describe it in docs/observability.md`);
  // prom-client exports metrics about Node and the process, under its own names.
  const ours = [...listed].filter((name) => !/^muster_(?:process|nodejs)_/.test(name));
  for (const name of ours) t.true(written.has(name), `docs/observability.md lists ${name}, which no file writes`);
  t.true(written.size > 50, "too few were found");
});

test("decisions are numbered without a gap, and each has its number, date and status", (t) => {
  for (const [at, page] of markdownIn("docs/adr").toSorted().entries()) {
    t.is(Number(basename(page).slice(0, 4)), at + 1, `${page} is number ${at + 1}`);
    const [title = "", , facts = ""] = read(page).split("\n");
    t.true(title.startsWith(`# ${at + 1}. `), `${page}: its title has its number`);
    const status = "(?:Proposed|Accepted|Implemented|Superseded by \\d+)";
    t.regex(facts, new RegExp(`^Date: \\d{4}-\\d\\d-\\d\\d · Status: ${status}\\b.* · Tags: \\S`), page);
  }
});

test("test/interop/go/README.md names the tests that use each peer", (t) => {
  const files = readdirSync(join(top, "test"), { recursive: true, encoding: "utf8" })
    .map((file) => join("test", file))
    .filter((path) => path.endsWith(".ts") && !path.startsWith("test/interop/go/"));
  const sources = new Map([...files, "bench/main.ts", "bench/swarmkit.ts"].map((path) => [path, read(path)]));
  /** The peers that a file uses, directly or through its imports. */
  const peersOf = (path: string, seen = new Set<string>()): readonly string[] => {
    const text = sources.get(path);
    if (text === undefined || seen.has(path)) return [];
    seen.add(path);
    const own = Array.from(text.matchAll(/\bpeer(?:Path|sMissing)\(([^)]*)\)/g), ([, names]) => names ?? "");
    const imported = Array.from(text.matchAll(/from "(\.[^"]+)"/g), ([, target]) => join(dirname(path), target ?? ""));
    return [
      ...own.flatMap((names) => Array.from(names.matchAll(/"([^"]+)"/g), ([, name]) => name ?? "")),
      ...imported.flatMap((target) => peersOf(target, seen)),
    ];
  };
  const users = [...sources.keys()].filter((path) => path.endsWith(".test.ts") || path === "bench/main.ts");
  const used = users.map((path) => ({ path, peers: new Set(peersOf(path)) }));
  const rows = read("test/interop/go/README.md")
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) => line.slice(2, -2).split(" | "));
  const told = new Set(rows.flatMap(([names]) => quoted(names ?? "")));
  t.deepEqual([...told].toSorted(), Object.keys(peers).toSorted());
  for (const [names, , by] of rows) {
    for (const name of quoted(names ?? "")) {
      t.deepEqual(
        quoted(by ?? "")
          .filter((each) => isOfThisTree.test(each))
          .toSorted(),
        used.flatMap((user) => (user.peers.has(name) ? [user.path] : [])).toSorted(),
        `${name} is used by other tests than stated: correct the last column of its row`,
      );
    }
  }
});
