import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { allCharts } from "../../cli/charts.ts";
import { picturesOf } from "../../cli/chart-mermaid.ts";
import { humanDuration } from "../../lib/human-duration.ts";
import { parseBytes, parseCount, parseCpus, parseDuration, parseRatio } from "../../cli/values.ts";
import { formatTable } from "../../cli/table.ts";
import { UsageError } from "../../lib/user-error.ts";
import {
  EngineDescription,
  Manager,
  Node,
  NodeDescription,
  NodeRole,
  NodeSpec_Availability,
  PluginDescription,
  TaskState,
} from "../../proto/gen/messages.ts";
import { readyNode, served, taskOf } from "../support/served.ts";

const top = fileURLToPath(new URL("../..", import.meta.url));

test("node ls prints Docker's columns and marks the manager that answers", async (t) => {
  const { muster, manager } = await served(t);
  manager.seed("node", readyNode("n1", "alpha"));
  manager.seed("manager", Manager.create({ id: "manager1", alive: true, addr: "192.0.2.1:2377" }));
  const { lines } = await muster("node", "ls");
  t.regex(lines[0] ?? "", /^ID +HOSTNAME +STATUS +AVAILABILITY +MANAGER STATUS +ENGINE VERSION$/);
  t.regex(lines[1] ?? "", /^manager1 \* +Ready +Drain +Leader$/);
  t.regex(lines[2] ?? "", /^n1 +alpha +Ready +Active$/);
  const json = (await muster("node", "ls", "--format=json")).lines.map((line) => JSON.parse(line) as object);
  t.like(json[0], { ID: "manager1", Self: true, ManagerStatus: "Leader" });
});

test("an error about a mistyped flag suggests similar flags", async (t) => {
  const { muster } = await served(t);
  for (const [args, sentence] of [
    [
      ["service", "create", "--replica", "3", "bb:1"],
      "unknown flag: --replica: did you mean '--replicas' or '--replicas-max-per-node'? see 'muster service create --help'",
    ],
    [
      ["service", "ls", "--fitler=name=web"],
      "unknown flag: --fitler: did you mean '--filter'? see 'muster service ls --help'",
    ],
    [["node", "ls", "--zzzzzzzz"], "unknown flag: --zzzzzzzz: see 'muster node ls --help'"],
    [["node", "ls", "-Z"], "unknown flag: -Z: see 'muster node ls --help'"],
  ] as const) {
    t.deepEqual(await muster(...args), { status: 125, lines: [], remarks: [`muster: ${sentence}`] });
  }
});

test("nodes are found by id, hostname, unique prefix and self", async (t) => {
  const { muster, manager } = await served(t);
  manager.seed("node", readyNode("n1aa", "alpha"), readyNode("n1ab", "beta"));
  const idOf = async (...args: string[]) => {
    const { lines, remarks } = await muster("node", "inspect", "--format", "json", ...args);
    return lines.length === 0 ? remarks[0] : (JSON.parse(lines[0] ?? "") as [{ ID: string }])[0].ID;
  };
  t.is(await idOf("n1aa"), "n1aa");
  t.is(await idOf("beta"), "n1ab");
  t.is(await idOf("self"), "manager1");
  t.is(await idOf("n1a"), "muster: node n1a is ambiguous (2 matches found)");
  t.is(await idOf("nobody"), "muster: node nobody not found");
  const whole = (await muster("node", "inspect", "alpha")).lines.join("\n");
  t.is((JSON.parse(whole) as unknown[]).length, 1);
});

test("node update drains and labels; node rm needs --force for one that is up", async (t) => {
  const { muster, manager } = await served(t);
  manager.seed("node", readyNode("n1", "alpha"));
  t.is((await muster("node", "update", "--availability", "drain", "--label-add", "zone=eu", "alpha")).status, 0);
  const node = manager.store.get("node", "n1") as Node;
  t.is(node.spec?.availability, NodeSpec_Availability.DRAIN);
  t.deepEqual(node.spec?.annotations?.labels, { zone: "eu" });
  t.is((await muster("node", "update", "--availability", "lazy", "alpha")).status, 125);
  t.is((await muster("node", "update", "alpha")).status, 125);
  t.deepEqual((await muster("node", "rm", "alpha")).remarks, ["muster: node n1 is not down and can't be removed"]);
  t.is((await muster("node", "rm", "--force", "alpha")).status, 0);
  t.is(manager.store.get("node", "n1"), undefined);
});

test("the manager's address may follow any command: it is not one of the command's own flags", async (t) => {
  const { muster, socket, manager } = await served(t);
  const plugins = [PluginDescription.create({ type: "Driver", name: "exec" })];
  const description = NodeDescription.create({ engine: EngineDescription.create({ plugins }) });
  manager.seed("node", Node.patch(readyNode("n1", "alpha"), { description }));
  const ask = async (...args: string[]) => (await muster(...args)).remarks;
  const exec = ["--driver", "exec", "--", "/bin/true"];
  t.deepEqual(await ask("service", "create", "-d", "-H", socket, "--name", "p", ...exec), []);
  t.deepEqual(await ask("service", "update", "-d", "-H", socket, "--label-add", "a=b", "p"), []);
  t.deepEqual(await ask("service", "plan", "update", "-H", socket, "--replicas", "2", "p"), []);
  t.deepEqual(await ask("service", "update", "-d", "-H", socket, "--rollback", "p"), []);
  t.deepEqual(await ask("job", "run", "-H", socket, "--name", "j", ...exec), []);
  for (const noun of ["node", "cluster"])
    t.regex((await ask(noun, "update", "-H", socket, "default"))[0] ?? "", /no settings to change/);
});

test("flags are parsed as Docker parses them: joined, short with '=', and repeated", async (t) => {
  const { muster, manager } = await served(t);
  const portsOf = (name: string) =>
    manager.store.byName("service", name)?.spec?.endpoint?.ports.map(({ publishedPort }) => publishedPort);
  t.deepEqual((await muster("service", "create", "-dp", "80:80", "--name=a", "bb:1")).remarks, []);
  t.deepEqual(portsOf("a"), [80]);
  t.deepEqual((await muster("service", "create", "-d=true", "-p=81:80", "-p82:80", "--name", "b", "bb:1")).remarks, []);
  t.deepEqual(portsOf("b"), [81, 82]);
  t.deepEqual(
    (await muster("service", "create", "-tqd", "-eA=1", "-e=B=2", "--name", "c", "bb:1", "-x=1")).remarks,
    [],
  );
  t.like(manager.store.byName("service", "c")?.spec?.task?.container, {
    tty: true,
    env: ["A=1", "B=2"],
    args: ["-x=1"],
  });
  const said = async (...args: string[]) => (await muster("service", "ls", ...args)).lines.length;
  t.is(await said("-q"), 3);
  t.is(await said("-q=false"), 4);
  t.is(await said("-q", "--quiet=false"), 4, "the last counts");
  t.is(await said("--quiet=false", "-q"), 3);
  t.is((await muster("network", "create", "--ipv4=true", "--ipv6=false", "blue")).status, 0);
  t.regex((await muster("network", "create", "--ipv4=false", "red")).remarks[0] ?? "", /every cluster network/);
  for (const args of [["-d=maybe"], ["-qx"], ["-p"], ["-dp"], ["-="], ["-é"]]) {
    const { remarks, status } = await muster("service", "create", ...args);
    t.is(status, 125, args.join(" "));
    t.regex(
      remarks[0] ?? "",
      /"--detach" flag: expected true or false|unknown flag: -[x=é-]|flag needs an argument: --publish/,
    );
  }
});

test("token prints just the token, and --rotate invalidates the old one", async (t) => {
  const { muster, manager } = await served(t);
  const stored = () => [...manager.store.all("cluster")][0]?.rootCa?.joinTokens;
  const before = stored();
  t.deepEqual((await muster("token", "worker")).lines, [before?.worker]);
  const { lines } = await muster("token", "worker", "--rotate");
  t.not(stored()?.worker, before?.worker);
  t.deepEqual(lines, [stored()?.worker]);
  t.is(stored()?.manager, before?.manager);
  t.is((await muster("token", "king")).status, 125);
});

test("ca prints the root certificate", async (t) => {
  const { muster, manager } = await served(t);
  const pem = new TextDecoder().decode([...manager.store.all("cluster")][0]?.rootCa?.caCert);
  t.is(`${(await muster("ca")).lines.join("\n")}\n`, pem);
});

test("tasks are listed and found by slot", async (t) => {
  const { muster, manager } = await served(t);
  await muster("service", "create", "-d", "--name", "web", "bb:1");
  const service = manager.store.byName("service", "web");
  if (service === undefined) throw new Error("no service");
  manager.seed("node", readyNode("n1", "alpha"));
  manager.seed(
    "task",
    taskOf(service, 1, "n1", TaskState.FAILED, { id: "t1", desiredState: TaskState.SHUTDOWN }),
    taskOf(service, 1, "n1", TaskState.RUNNING, { id: "t2" }),
  );
  t.deepEqual((await muster("task", "ls", "-q")).lines, ["t2"]);
  t.deepEqual((await muster("task", "ls", "-q", "--all")).lines.toSorted(), ["t1", "t2"]);
  t.deepEqual(
    (await muster("task", "ls", "-q", "--filter", "desired-state=shutdown", "--filter", "node=alpha")).lines,
    ["t1"],
  );
  t.deepEqual((await muster("task", "ls", "-q", "--filter", "desired-state=Accepted")).lines, []);
  t.deepEqual((await muster("service", "ps", "-q", "--filter", "desired-state=accepted", "web")).lines, []);
  t.deepEqual((await muster("service", "ps", "-q", "--filter", "desired-state=Shutdown", "web")).lines, ["t1"]);
  t.is((await muster("service", "ps", "--filter", "desired-state=dead", "web")).status, 125);
  t.is((await muster("task", "ls", "--filter", "colour=red")).status, 125);
  t.regex((await muster("task", "inspect", "t1")).lines.join(""), /"ID": "t1"/);
  const why = (await muster("why", "web.1")).lines;
  t.regex(why[0] ?? "", /^task web\.1\.t\d \(t\d\)$/);
  t.is(why[1], "  waiting for: a node");
  t.true(why.includes("  woken by:    node.ready"));
  t.deepEqual((await muster("why", "web")).lines[1], "  waiting for: nothing: it is where it should be");
  // Two nodes with one name are ambiguous. A service wins over a node with the same name.
  manager.seed("node", readyNode("n8", "twin"), readyNode("n9", "twin"), readyNode("n7", "web"));
  const twin = await muster("why", "twin");
  t.deepEqual(twin.remarks, ["muster: twin is ambiguous (2 matches found: node n8, node n9): use an id"]);
  t.regex((await muster("why", "web")).lines[0] ?? "", /^service web /);
  t.regex(
    (await muster("why", "nobody")).remarks[0] ?? "",
    /no task, service, node, network or volume has the id or name nobody/,
  );
});

test("events prints a line for each change until the manager exits", async (t) => {
  const { musterWith, muster, manager } = await served(t);
  const seen: string[] = [];
  const first = Promise.withResolvers<void>();
  void musterWith(
    (line) => {
      seen.push(line);
      first.resolve();
    },
    "events",
    "--filter",
    "type=service",
    "--format",
    "json",
  );
  for (let turn = 0; turn < 100 && seen.length === 0; turn += 1) {
    await muster("service", "create", "-d", "--name", `web${turn}`, "bb:1");
    manager.seed("node", readyNode("n1", "alpha"));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await first.promise;
  const event = JSON.parse(seen[0] ?? "") as Record<string, unknown>;
  t.like(event, { Type: "service", Action: "create" });
  t.true((event["Version"] as number) > 0);
});

test("the charts include every machine of the system, and each can be drawn", async (t) => {
  const sources = readdirSync(join(top, "machines"), { recursive: true, encoding: "utf8" });
  const files = sources.filter(
    (file) =>
      file.endsWith(".ts") && /^export const \w+Machine\b/m.test(readFileSync(join(top, "machines", file), "utf8")),
  );
  const charts = await allCharts();
  t.deepEqual([...new Set(charts.map(({ file }) => file))], files.toSorted());
  for (const { name, machine, summary } of charts) {
    t.not(summary, "", `${name} describes itself in its header`);
    const pictures = picturesOf(machine);
    for (const state of Object.keys(machine.root.states))
      t.true(pictures[0]?.mermaid.includes(`"${state}`), `${name} ${state}`);
    for (const { mermaid } of pictures) {
      t.true(mermaid.startsWith("stateDiagram-v2\n"), name);
      t.is(mermaid.split("{").length, mermaid.split("}").length, name);
    }
    t.notThrows(() => JSON.stringify(machine.config), name);
  }
});

test("charts shows events, guards, delays and final states", async (t) => {
  const { muster } = await served(t);
  const { lines } = await muster("charts", "certificate", "--format", "mermaid");
  t.true(lines.some((line) => line.trim() === "sorting --> rotating : always<br/>[isRotating]"));
  t.true(lines.some((line) => line.trim() === "waiting --> pending : csr.received<br/>after retryDelay"));
  t.true(lines.some((line) => line.trim() === "issued --> [*]"));
  t.true((await muster("charts", "-q")).lines.includes("certificate"));
  t.is((await muster("charts", "nothing")).status, 1);
  const { lines: filled } = await muster("charts", "certificate", "session", "--format", "{{.Name}} {{.States}}");
  t.regex(filled.join("\n"), /^certificate \d+\nsession \d+$/);
  t.is((await muster("charts", "--format", "{{.Nothing")).status, 125);
  const json = (await muster("charts", "certificate", "--format", "json")).lines;
  t.like(JSON.parse(json[0] ?? ""), { name: "certificate", machine: { id: "certificate" } });
});

test("help is printed for the command, each noun and each verb", async (t) => {
  const { muster } = await served(t);
  for (const args of [
    [],
    ["--help"],
    ["node"],
    ["service", "--help"],
    ["service", "create", "--help"],
    ["token", "-h"],
  ]) {
    const { status, lines } = await muster(...args);
    t.is(status, 0);
    t.regex(lines[0] ?? "", /^Usage: muster/);
  }
});

test("durations, sizes and cores are parsed as Docker parses them", (t) => {
  t.like(parseDuration("1m30.5s", "x"), { seconds: 90, nanos: 500_000_000 });
  t.like(parseDuration("100ms", "x"), { seconds: 0, nanos: 100_000_000 });
  t.like(parseDuration("-5s", "x"), { seconds: -5 });
  t.is(parseBytes("512m", "x"), 512 * 1024 * 1024);
  t.is(parseBytes("1.5GiB", "x"), 1.5 * 1024 ** 3);
  t.is(parseBytes("4096", "x"), 4096);
  t.is(parseCpus("0.25", "x"), 250_000_000);
  t.like(parseDuration(".5s", "x"), { seconds: 0, nanos: 500_000_000 });
  t.like(parseDuration("+1.m", "x"), { seconds: 60 });
  t.is(parseBytes(".5g", "x"), 1024 ** 3 / 2);
  t.deepEqual(
    ["1.", "1/2", "1e-1", ".5", "1000.1"].map((text) => parseCpus(text, "x")),
    [1e9, 5e8, 1e8, 5e8, 1_000_100_000_000],
  );
  t.is(parseRatio("1e-1", "x"), Math.fround(0.1));
  t.is(parseRatio("1.", "x"), 1);
  t.throws(() => parseDuration("99999999999999h", "x"), { message: /longer than 292 years/ });
  t.throws(() => parseBytes("99999999999t", "x"), { message: /out of range/ });
  t.throws(() => parseCount("18446744073709551617", "x"), { message: /out of range/ });
  t.throws(() => parseCount("-1", "x"), { message: "--x cannot be negative" });
  for (const bad of ["1/0", "1/3", "0.0000000001", "1e-11", "x", "-1"])
    t.throws(() => parseCpus(bad, "x"), { instanceOf: UsageError }, bad);
  for (const bad of ["5", "s", "5 s", ".s", ""])
    t.throws(() => parseDuration(bad, "x"), { instanceOf: UsageError }, bad);
  for (const bad of ["x", "1x", "-1"]) t.throws(() => parseBytes(bad, "x"), { instanceOf: UsageError }, bad);
});

test("times are formatted as Docker formats them", (t) => {
  const told = (seconds: number) => humanDuration(seconds * 1_000);
  t.deepEqual([0, 1, 59, 60, 119, 120, 3_600, 7_200, 172_800, 59 * 86_400, 60 * 86_400].map(told), [
    "Less than a second",
    "1 second",
    "59 seconds",
    "About a minute",
    "About a minute",
    "2 minutes",
    "About an hour",
    "2 hours",
    "2 days",
    "8 weeks",
    "2 months",
  ]);
});

test("columns are as wide as their widest cell plus three spaces, with a minimum of ten", (t) => {
  t.is(formatTable(["ID", "NAME"], [["abcdefghijkl", "x"]]), "ID             NAME\nabcdefghijkl   x");
  t.is(formatTable(["ID", "NAME"], [["a", "x"]]), "ID        NAME\na         x");
});

test("the managers started here are remembered, the last one first, until they exit", (t) => {
  const state = mkdtempSync(join(tmpdir(), "muster-state-"));
  t.teardown(() => rmSync(state, { recursive: true, force: true }));
  const script = `
    const { forgetHost, knownHosts, rememberHost } = await import(${JSON.stringify(join(top, "processes", "last-host.ts"))});
    const show = () => process.stdout.write(knownHosts().join(" ") + "\\n");
    for (const host of ["a", "b", "c", "a"]) rememberHost("unix:///" + host);
    show();
    forgetHost("unix:///a");
    show();
    for (let at = 0; at < 40; at += 1) rememberHost("unix:///" + at);
    process.stdout.write(String(knownHosts().length));`;
  const env = { ...process.env, XDG_STATE_HOME: state };
  t.is(
    execFileSync(process.execPath, ["--input-type=module", "-e", script], { env, encoding: "utf8" }),
    "unix:///a unix:///c unix:///b\nunix:///c unix:///b\n16",
  );
  t.true(existsSync(join(state, "muster", "host")));
});

test("bin/muster finds its Node and exits with the command's status", (t) => {
  const ran = spawnSync(join(top, "bin", "muster"), ["frobnicate"], { encoding: "utf8" });
  t.is(ran.status, 125);
  t.is(ran.stderr, "muster: unknown command: muster frobnicate: see 'muster --help'\n");
  t.is(spawnSync(join(top, "bin", "muster"), ["charts", "-q"], { encoding: "utf8" }).status, 0);
  t.is(NodeRole.MANAGER, 1);
});
