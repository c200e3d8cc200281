import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import { parseEnvFile } from "../../cli/stack/env-file.ts";
import { serviceSpecOf } from "../../cli/stack/convert-service.ts";
import { ignoredOptions } from "../../cli/stack/ignored.ts";
import { interpolated, InterpolationError } from "../../cli/stack/interpolate.ts";
import { plainOf } from "../../cli/stack/located.ts";
import { inOrderOfDependence, inTurn } from "../../cli/stack/order.ts";
import { loadProject } from "../../cli/stack/project.ts";
import { service as serviceShape } from "../../cli/stack/schema-service.ts";
import { View } from "../../cli/stack/view.ts";
import { parseYaml } from "../../cli/stack/yaml.ts";
import { UserError } from "../../lib/user-error.ts";
import { tempDir } from "../fixtures/muster.ts";

interface Loaded {
  readonly plain: Record<string, Record<string, Record<string, unknown>>>;
  readonly warnings: readonly string[];
  readonly folder: string;
}

/** Loads a project from strings; Compose files are the first and all whose names begin with `c` and end in `.yaml`. */
function load(t: ExecutionContext, files: Readonly<Record<string, string>>, env: Record<string, string> = {}): Loaded {
  const folder = tempDir(t, "compose");
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  const warnings: string[] = [];
  const composes = Object.keys(files).filter((name) => /^c.*\.yaml$/.test(name));
  const { tree } = loadProject({
    files: composes.map((name) => join(folder, name)),
    environment: env,
    warn: (text) => warnings.push(text),
  });
  return { plain: plainOf(tree) as Loaded["plain"], warnings, folder };
}

const a = (service: string): string => `services:\n  a:\n    image: bb\n${service.replaceAll(/^/gm, "    ")}`;

const refused = test.macro((t, text: string, sentence: RegExp) => {
  const { message } = t.throws(() => load(t, { "c.yaml": text }), { instanceOf: UserError });
  t.regex(message, sentence);
  t.regex(message, /^\/.*\/c\.yaml:\d+: /);
  t.false(message.includes("\n"));
});

test(
  "an unknown key",
  refused,
  a("imagee: x"),
  /c\.yaml:4: services\.a\.imagee is not supported .*did you mean 'image'\?$/,
);
test(
  "an unknown key that resembles none",
  refused,
  a("zzzzzzzz: x"),
  /services\.a\.zzzzzzzz is not supported in a Compose file$/,
);
test(
  "an unknown key at the top",
  refused,
  "service: {}",
  /c\.yaml:1: service is not supported .*did you mean 'services'\?/,
);
test(
  "a list instead of a string",
  refused,
  a("hostname: [x]"),
  /c\.yaml:4: services\.a\.hostname must be a string, not a list/,
);
test(
  "a string instead of a mapping",
  refused,
  a("deploy: x"),
  /services\.a\.deploy must be empty or a mapping, not 'x'/,
);
test("an invalid service", refused, "services:\n  a: 5", /c\.yaml:2: services\.a must be a mapping, not 5/);
test(
  "a choice",
  refused,
  a("deploy:\n  mode: many"),
  /c\.yaml:5: services\.a\.deploy\.mode must be one of replicated, /,
);
test(
  "a number that is too large",
  refused,
  a("ports:\n  - {target: 70000}"),
  /ports\[0\]\.target must be a whole number from 1/,
);
test("an invalid port", refused, a("ports: ['x:80']"), /ports\[0\] must be \[PUBLISHED:\]TARGET/);
test("an invalid volume", refused, a("volumes: ['a:b:c:d']"), /volumes\[0\] must be \[SOURCE:\]TARGET/);
test("a required key", refused, a("volumes: [{target: /x}]"), /volumes\[0\] requires 'type'/);
test("a duplicate key", refused, a("image: b2"), /c\.yaml:\d+: .*unique/i);
test("a broken flow collection", refused, "services: [", /c\.yaml:1: /);
test("a list as file", refused, "- a", /a Compose file must be a mapping/);
test("an unknown anchor", refused, a("hostname: *x"), /c\.yaml:4: /);
test(
  "an unterminated variable",
  refused,
  a("hostname: '${X'"),
  /c\.yaml:4: services\.a\.hostname has a '\$\{' without/,
);
test("a required variable", refused, a("hostname: '${X:?say it}'"), /requires the variable X: say it/);
test("a lone dollar", refused, a("hostname: 'a$'"), /'\$' without a variable name: write \$\$/);
test("an unterminated quote", refused, a(`command: 'a "b'`), /services\.a\.command has no closing quote/);
test("a name of blanks", refused, "services:\n  'a b': {image: x}", /services\."a b" has an invalid name/);
test("a missing environment file", refused, a("env_file: none.env"), /cannot read the environment file .*none\.env/);
test("circular extends", refused, a("extends: a"), /services\.a\.extends is a cycle/);
test(
  "extends of an unknown service",
  refused,
  a("extends: {service: b}"),
  /refers to the service 'b', which does not exist/,
);
test(
  "exponential aliases",
  refused,
  `x-a: &a [1,2,3,4,5,6,7,8,9,10]\n${Array.from("bcdefg")
    .map((name, at) => `x-${name}: &${name} [${Array.from({ length: 10 }, () => `*${"abcdef".charAt(at)}`).join(",")}]`)
    .join("\n")}`,
  /aliases expand to more than|is more than|Excessive/i,
);

test("variables: defaults, errors, replacements, dollars, nesting", (t) => {
  const held: Record<string, string> = { A: "1", E: "" };
  const missing: string[] = [];
  const variables = { get: (name: string) => held[name], missing: (name: string) => void missing.push(name) };
  const cases: readonly (readonly [string, string])[] = [
    ["$A-${A}-$$A-$${A}", "1-1-$A-${A}"],
    ["${U:-d}${E:-d}${A:-d}", "dd1"],
    ["${U-d}${E-d}${A-d}", "d1"],
    ["${U:+r}${E:+r}${A:+r}", "r"],
    ["${U+r}${E+r}${A+r}", "rr"],
    ["${U:-${V:-${A}}x}}", "1x}"],
    ["${A:?no}${E?no}", "1"],
    ["${U:-}|${U:-a:-b}|${U:-$$}", "|a:-b|$"],
  ];
  for (const [text, expected] of cases) t.is(interpolated(text, variables), expected, text);
  t.deepEqual(missing, []);
  t.is(interpolated("[$U][${U}]", variables), "[][]");
  t.deepEqual(missing, ["U", "U"]);
  for (const text of ["${E:?no}", "${U?no}", "${}", "${1}", "${A!}", "$ ", "${A:~x}", "${"]) {
    t.throws(() => interpolated(text, variables), { instanceOf: InterpolationError }, text);
  }
});

test("interpolation ends with a string or its own error, whatever the input", (t) => {
  const part = fc.constantFrom("$", "{", "}", "$$", "${", "A", ":-", "-", "?", ":+", " ", "B_1", "é");
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
      try {
        interpolated(parts.join(""), { get: (name) => (name === "A" ? "v" : undefined) });
      } catch (error) {
        if (!(error instanceof InterpolationError)) throw error;
      }
    }),
    { numRuns: 500 },
  );
  t.pass();
});

test("any YAML is a tree or an error with its line", (t) => {
  const part = fc.constantFrom(
    "a",
    ": ",
    "\n",
    "  ",
    "- ",
    "&x ",
    "*x",
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    "<<",
    "|",
    "!t ",
    "#",
    ",",
    "? ",
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 20 }), (parts) => {
      try {
        plainOf(parseYaml(parts.join(""), "f"));
      } catch (error) {
        if (!(error instanceof UserError) || !/^f(:\d+)?: /.test(error.message)) throw error;
      }
    }),
    { numRuns: 500 },
  );
  t.pass();
});

test("environment files: quotes, comments, export, several lines, names alone", (t) => {
  const text = [
    "# comment",
    "A=1",
    "export B = two words  # not this",
    "C='$A # kept'",
    'D="$A\\n\\$A"',
    'E="first',
    'second"',
    "F=$A$D",
    "G: yaml",
    "OUT",
    "NONE",
    "EMPTY=",
    "H=a#b",
  ].join("\r\n");
  const read = parseEnvFile(text, "x.env", { get: (name) => (name === "OUT" ? "o" : undefined) });
  t.deepEqual(Object.fromEntries(read), {
    A: "1",
    B: "two words",
    C: "$A # kept",
    D: "1\n$A",
    E: "first\nsecond",
    F: "11\n$A",
    G: "yaml",
    OUT: "o",
    NONE: null,
    EMPTY: "",
    H: "a#b",
  });
  t.deepEqual(Object.fromEntries(parseEnvFile("A='x' # y", "x.env", { get: () => undefined }, true)), { A: "'x' # y" });
  const line = (bad: string): string =>
    t.throws(() => parseEnvFile(bad, "x.env", { get: () => undefined }), { instanceOf: UserError }).message;
  t.regex(line("A=1\n=2"), /^x\.env:2: invalid line '=2': expected NAME=VALUE/);
  t.regex(line('A=1\nB="x\n\n'), /^x\.env:2: B has no closing quote/);
  t.regex(line('A="1\n2"\nC="3" 4'), /^x\.env:3: C has unexpected text after its closing quote: '4'/);
});

test("environment overrides env_file, of several files the later wins, and optional files may be missing", (t) => {
  const { plain } = load(
    t,
    {
      "c.yaml": a(
        "env_file: [one.env, {path: two.env}, {path: none.env, required: false}, {path: raw.env, format: raw}]\n" +
          "environment: {C: own, OUTER: , UNSET: }",
      ),
      "one.env": "A=1\nB=1\nC=1\nALONE",
      "two.env": "B=$A2\nD='q'",
      "raw.env": "E='q'",
    },
    { OUTER: "x" },
  );
  t.deepEqual(plain["services"]?.["a"]?.["environment"], {
    A: "1",
    B: "",
    D: "q",
    E: "'q'",
    C: "own",
    OUTER: "x",
    UNSET: null,
  });
});

test(".env beside the first file sets variables, the environment wins, and an unset variable is reported once", (t) => {
  const { plain, warnings } = load(
    t,
    { "c.yaml": a("hostname: $A-$B-$C-$C"), ".env": "A=file\nB=file\n" },
    { B: "outside" },
  );
  t.is(plain["services"]?.["a"]?.["hostname"], "file-outside--");
  t.deepEqual(warnings, ['The "C" variable is not set. Defaulting to a blank string.']);
});

test("files are merged by Compose's rules", (t) => {
  const { plain, folder } = load(t, {
    "c1.yaml": a(
      [
        "command: a b",
        "environment: {A: 1, B: 1}",
        "ports: ['80:80', '81:81/udp']",
        "volumes: ['./x:/x', 'v:/v']",
        "dns: [1.1.1.1, 2.2.2.2]",
        "networks: [one]",
        "secrets: [s, {source: t, target: u}]",
        "logging: {driver: json-file, options: {max-size: 1m}}",
        "ulimits: {nofile: {soft: 1, hard: 2}}",
        "extra_hosts: [x:1.1.1.1, x:2.2.2.2, y:3.3.3.3]",
        "deploy: {replicas: 2, labels: [a=b], placement: {constraints: [c1]}}",
      ].join("\n"),
    ),
    "c2.yaml": a(
      [
        "command: [c]",
        "environment: [B=2, C]",
        "ports: ['80:80', 82]",
        "volumes: ['w:/v:ro']",
        "dns: 2.2.2.2",
        "networks: {two: {aliases: [z]}, one: }",
        "secrets: [{source: w, target: u}]",
        "logging: {options: {max-file: 2}}",
        "ulimits: {nofile: 5}",
        "extra_hosts: {x: 9.9.9.9}",
        "deploy: {labels: {c: 1}, placement: {constraints: [c1, c2]}}",
      ].join("\n"),
    ),
  });
  t.deepEqual(plain["services"]?.["a"], {
    image: "bb",
    command: ["c"],
    environment: { A: "1", B: "2", C: null },
    ports: [
      { mode: "ingress", target: 81, published: 81, protocol: "udp" },
      { mode: "ingress", target: 80, published: 80, protocol: "tcp" },
      { mode: "ingress", target: 82, protocol: "tcp" },
    ],
    volumes: [
      { type: "bind", source: join(folder, "x"), target: "/x" },
      { type: "volume", source: "w", target: "/v", read_only: true },
    ],
    dns: ["1.1.1.1", "2.2.2.2"],
    networks: { one: null, two: { aliases: ["z"] } },
    secrets: [{ source: "s" }, { source: "w", target: "u" }],
    logging: { driver: "json-file", options: { "max-size": "1m", "max-file": 2 } },
    ulimits: { nofile: { soft: 5, hard: 5 } },
    extra_hosts: ["y:3.3.3.3", "x:9.9.9.9"],
    deploy: { replicas: 2, labels: { a: "b", c: "1" }, placement: { constraints: ["c1", "c2"] } },
  });
});

test("!reset removes a value, !override replaces it entirely", (t) => {
  const { plain } = load(t, {
    "c1.yaml": a("ports: [80]\nuser: u\nlabels: {x: 1}\ndns: [1.1.1.1]"),
    "c2.yaml": a("ports: !reset []\nuser: !reset null\nlabels: !override {y: 2}\ndns: !override [2.2.2.2]"),
  });
  t.deepEqual(plain["services"]?.["a"], { image: "bb", labels: { y: "2" }, dns: ["2.2.2.2"] });
});

test("extends copies from this file and from others, include adds whole projects", (t) => {
  const { plain, folder } = load(t, {
    "c.yaml":
      "include: [sub/more.yaml]\nservices:\n  a: {extends: b, user: own}\n  b: {extends: {file: sub/base.yaml, service: x}, image: bb}\n",
    "sub/base.yaml": "services: {x: {image: no, labels: {l: 1}, volumes: ['./d:/d'], user: base}}",
    "sub/more.yaml": "services: {m: {image: 'mm:${V:-0}'}}\nnetworks: {n: }",
    "sub/.env": "V=7",
  });
  t.like(plain["services"]?.["a"], { image: "bb", user: "own", labels: { l: "1" } });
  t.like(plain["services"]?.["b"], { user: "base", volumes: [{ source: join(folder, "sub", "d") }] });
  t.like(plain["services"]?.["m"], { image: "mm:7" });
  t.true("n" in (plain["networks"] ?? {}));
  const twice = { "c.yaml": `include: [more.yaml]\n${a("")}`, "more.yaml": a("") };
  t.regex(t.throws(() => load(t, twice)).message, /c\.yaml:1: include conflicts with the existing services\.a/);
  const round = { "c.yaml": `include: [c2.yml]\n${a("")}`, "c2.yml": "include: [c2.yml]" };
  t.regex(t.throws(() => load(t, round)).message, /c2\.yml:1: include is a cycle/);
});

test("services with profiles exist when a profile of theirs is active", (t) => {
  const file = { "c.yaml": `${a("")}\n  p: {image: bb, profiles: [debug]}\n` };
  t.deepEqual(Object.keys(load(t, file).plain["services"] ?? {}), ["a"]);
  t.deepEqual(Object.keys(load(t, file, { COMPOSE_PROFILES: "x, debug" }).plain["services"] ?? {}), ["a", "p"]);
});

test("octal numbers, merge keys and anchors are parsed as Docker parses them", (t) => {
  const { plain } = load(t, {
    "c.yaml":
      "x-b: &b {image: bb, labels: {a: 1}}\nservices:\n  a:\n    <<: *b\n    user: x\n    configs: [{source: c, mode: 0440}, {source: d, mode: 0o400}]\n",
  });
  const service = plain["services"]?.["a"];
  t.like(service, { image: "bb", labels: { a: "1" }, user: "x" });
  t.like(service?.["configs"], [{ mode: 0o440 }, { mode: 0o400 }]);
});

test("services are created after their dependencies, and a cycle terminates", (t) => {
  const tree = parseYaml(
    "s: {a: {depends_on: {z: , y: }}, y: {depends_on: {z: }}, z: {depends_on: {b: }}, b: {}, c: {depends_on: {d: }}, d: {depends_on: {c: }}}",
    "f",
  );
  t.deepEqual(inOrderOfDependence(new View(tree, "").children("s")), ["b", "z", "y", "a", "d", "c"]);
});

test("services are created concurrently, each once its dependencies exist; a failure stops it", async (t) => {
  const names = Array.from({ length: 40 }, (_, at) => `s${at}: {}`).join(", ");
  const tree = parseYaml(
    `s: {a: {depends_on: {b: }}, b: {}, c: {depends_on: {d: }}, d: {depends_on: {c: }}, ${names}}`,
    "f",
  );
  const services = new View(tree, "").children("s");
  const made: string[] = [];
  let [underWay, most] = [0, 0];
  const make = async (name: string): Promise<string> => {
    most = Math.max(most, (underWay += 1));
    if (name === "a") t.true(made.includes("b"));
    await new Promise((resolve) => setImmediate(resolve));
    underWay -= 1;
    made.push(name);
    if (name === "s1") throw new Error("no s1");
    return name;
  };
  await t.throwsAsync(inTurn(services, make), { message: "no s1" });
  t.is(underWay, 0, "every call that began has finished");
  t.true(made.length < 44);
  t.true(most > 1 && most <= 16, String(most));
  made.length = 0;
  const all = await inTurn(services, async (name, at) => `${await make(name === "s1" ? "one" : name)} ${at}`);
  t.deepEqual(
    all,
    inOrderOfDependence(services).map((name, at) => `${name === "s1" ? "one" : name} ${at}`),
  );
});

/** Possible values of any field. */
const values = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, depthSize: "small" },
    fc.constantFrom(
      "",
      "a",
      "a=b",
      "80:80",
      "1s",
      "64m",
      "true",
      "/x:/y:ro",
      "none",
      "[::1]:1:2",
      "1-0",
      "a:b:c",
      "-1",
    ),
    fc.constantFrom(null, true, 0, 1, -1, 1.5, 1e300),
    fc.array(tie("value"), { maxLength: 2 }),
    fc.dictionary(
      fc.constantFrom("source", "target", "type", "mode", "soft", "hard", "a", "cpus", "test"),
      tie("value"),
      {
        maxKeys: 3,
      },
    ),
  ),
})).value;

test("any service is a spec or an error with its place", (t) => {
  const folder = tempDir(t, "fuzz");
  const file = join(folder, "c.yaml");
  const service = fc.dictionary(fc.constantFrom(...Object.keys(serviceShape.keys)), values, { maxKeys: 3 });
  const lookups = { network: String, secret: String, config: String };
  let made = 0;
  fc.assert(
    fc.property(service, service, (one, other) => {
      writeFileSync(file, JSON.stringify({ services: { a: { image: "bb", ...one } } }));
      writeFileSync(join(folder, "d.yaml"), JSON.stringify({ services: { a: other } }));
      try {
        const files = [file, join(folder, "d.yaml")];
        const { tree } = loadProject({ files, environment: {}, warn: () => undefined });
        const project = new View(tree, "");
        for (const [name, view] of project.children("services")) {
          serviceSpecOf(name, view, { stack: "s", project, lookups });
          made += 1;
        }
        ignoredOptions(project);
      } catch (error) {
        if (!(error instanceof UserError) || !/(?:^\/.*\.yaml:\d+: |^cannot read )/.test(error.message)) throw error;
      }
    }),
    { numRuns: 500 },
  );
  t.true(made > 20, `${made} made`);
});
