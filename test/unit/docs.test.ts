// What the pages of docs/ say of this tree is so: the files that they name, the tests that parity names, the metrics.
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

/** Pages about the tree as it is now. References are about other systems; decisions tell what was so in their day. */
const pages = ["README.md", ...markdownIn("docs")];
/** Pages of which links must lead somewhere. */
const linking = [...pages, ...markdownIn("docs/adr"), ...markdownIn("docs/machines")];

/** What stands in backticks, but for blocks of code. */
function quoted(text: string): readonly string[] {
  const prose = text.replaceAll(/^( *)```[^\n]*\n.*?^\1```$/gms, "");
  return Array.from(prose.matchAll(/`([^`\n]+)`/g), ([, inside]) => inside as string);
}

const folders = readdirSync(top, { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && /^[a-z]/.test(entry.name) && entry.name !== "node_modules")
  .map(({ name }) => name);
const isOfThisTree = new RegExp(`^(?:${folders.join("|")})/[\\w./*-]*$`);

/** A `*` stands for any part of a name. */
function isThere(path: string): boolean {
  if (!path.includes("*")) return existsSync(join(top, path));
  const pattern = new RegExp(`^${basename(path).replaceAll(".", "\\.").replaceAll("*", "[^/]*")}$`);
  const folder = join(top, dirname(path));
  return existsSync(folder) && readdirSync(folder).some((name) => pattern.test(name));
}

function basename(path: string): string {
  return path.replace(/\/$/, "").split("/").at(-1) ?? "";
}

test("each file that a page names is there", (t) => {
  /** What a page has its reader make. */
  const made = new Set(["drivers/shell/main.ts"]);
  let count = 0;
  for (const page of pages) {
    for (const path of quoted(read(page)).filter((each) => isOfThisTree.test(each) && !made.has(each))) {
      count += 1;
      t.true(isThere(path), `${page} names ${path}, which is not there: say what is`);
    }
  }
  t.true(count > 50, "they are found at all");
});

test("each test that parity names is there, and each of its rows says where it is tested", (t) => {
  const lines = read("docs/parity.md").split("\n");
  for (const line of lines.filter((each) => each.startsWith("| "))) {
    const cells = line.slice(2, -2).split(" | ");
    const named = quoted(cells.at(-1) ?? "").filter((each) => /^(?:unit|cluster|interop|sim)\//.test(each));
    for (const name of named) {
      const files = [`test/${name}.test.ts`, `test/${name}.ts`, `test/${name}`];
      t.true(
        files.some((file) => existsSync(join(top, file))),
        `docs/parity.md names the test ${name}, which is not there`,
      );
    }
    const isHead = /tested in$/i.test(cells.at(-1) ?? "");
    const says = named.length > 0 || cells.at(-1) === "-" || /\b[SL]\d+|simulation/.test(cells.at(-1) ?? "");
    t.true(isHead || says, `docs/parity.md: this row names no test: ${line}`);
  }
});

test("each weakness that the reference marks is at a row of parity, by the number of its section", (t) => {
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
      `docs/parity.md has ${count} rows for ${marks} marks of §${number}: say what is done about each`,
    );
  }
  for (const number of listed.keys())
    t.true(marked.has(number), `docs/parity.md: the reference marks nothing in §${number}`);
  t.true(marked.size > 20, "they are found at all");
});

test("each link to a file of the tree leads to one, and to a heading that it has", (t) => {
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
      t.true(existsSync(join(top, file)), `${page} links to ${target}, which is not there`);
      if (anchor !== undefined && file.endsWith(".md") && existsSync(join(top, file)))
        t.true(anchorsOf(file).has(anchor), `${page} links to ${target}: ${file} has no such heading`);
    }
  }
  t.true(count > 100, "they are found at all");
});

test("docs/observability.md lists every metric that is written, and no other", (t) => {
  const written = new Map<string, string>();
  for (const folder of ["actors", "cli", "drivers", "edges", "machines", "node", "runtime"]) {
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
    t.true(listed.has(name), `${path} writes ${name}: say in docs/observability.md what it is`);
  // What Node and the process are like is told by prom-client, under its own names.
  const ours = [...listed].filter((name) => !/^muster_(?:process|nodejs)_/.test(name));
  for (const name of ours) t.true(written.has(name), `docs/observability.md lists ${name}, which nobody writes`);
  t.true(written.size > 50, "they are found at all");
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

test("test/interop/go/README.md says of every peer which tests use it", (t) => {
  const files = readdirSync(join(top, "test"), { recursive: true, encoding: "utf8" })
    .map((file) => join("test", file))
    .filter((path) => path.endsWith(".ts") && !path.startsWith("test/interop/go/"));
  const sources = new Map([...files, "bench/main.ts", "bench/swarmkit.ts"].map((path) => [path, read(path)]));
  /** The peers that a file asks for, itself or by what it imports. */
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
        `who uses ${name}: say so in the last column of its row`,
      );
    }
  }
});
