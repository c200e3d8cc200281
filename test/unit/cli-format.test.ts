import test from "ava";
import { formatTable } from "../../cli/table.ts";
import { cutTo, printable, textWidth } from "../../cli/text-width.ts";
import { NodeRole, Node, NodeSpec, TaskState } from "../../proto/gen/messages.ts";
import { readyNode, served, taskOf } from "../support/served.ts";

async function withServices(t: Parameters<typeof served>[0]) {
  const all = await served(t);
  await all.muster("service", "create", "-d", "--name", "web", "--label", "a.b=c", "--replicas", "2", "bb:1");
  await all.muster("service", "create", "-d", "--name", "db", "bb:2");
  return all;
}

test("a listing is printed by a template of Docker's names", async (t) => {
  const { muster } = await withServices(t);
  const ls = async (format: string) => (await muster("service", "ls", "--format", format)).lines;
  t.deepEqual(await ls("{{.Name}}: {{.Replicas}} of {{.Image}}"), ["db: 0/1 of bb:2", "web: 0/2 of bb:1"]);
  t.deepEqual(await ls(String.raw`{{.Name}}\t{{.Mode}}`), ["db\treplicated", "web\treplicated"]);
  t.deepEqual(await ls('{{.Name}} {{.Labels}} {{.Label "a.b"}}'), ["db  ", "web a.b=c c"]);
  t.deepEqual(await ls("{{upper .Name}}{{if eq .Name `web`}}!{{end}}"), ["DB", "WEB!"]);
  t.deepEqual(await ls("{{.spec.annotations.name}}"), ["db", "web"]);
  t.like(JSON.parse((await ls("{{json .}}"))[0] ?? ""), { Name: "db", Mode: "replicated", Image: "bb:2" });
});

test("table TEMPLATE prints Docker's headings above", async (t) => {
  const { muster } = await withServices(t);
  t.deepEqual((await muster("service", "ls", "--format", String.raw`table {{.Name}}\t{{.Replicas}}`)).lines, [
    "NAME      REPLICAS",
    "db        0/1",
    "web       0/2",
  ]);
  const ps = await muster("service", "ps", "web", "--format", String.raw`table {{.DesiredState}}\t{{.CurrentState}}`);
  t.deepEqual(ps.lines, ["DESIRED STATE   CURRENT STATE"]);
});

test("an invalid template is a usage error, and one that does not fit the object is not", async (t) => {
  const { muster } = await withServices(t);
  t.deepEqual(await muster("service", "ls", "--format", "{{.Name"), {
    status: 125,
    lines: [],
    remarks: ["muster: --format: template:1:1: unclosed action"],
  });
  const { remarks, status } = await muster("service", "ls", "--format", "{{.Nope}}");
  t.is(status, 1);
  t.deepEqual(remarks, ["muster: --format: template:1:3: can't evaluate field Nope: there is no such field"]);
  t.is((await muster("service", "ls", "--format", "yaml")).status, 125);
});

test("inspect shows Docker's object, SwarmKit's with wire, and parts by templates", async (t) => {
  const { muster } = await withServices(t);
  const inspect = async (...args: string[]) => (await muster("service", "inspect", ...args)).lines.join("\n");
  const [whole] = JSON.parse(await inspect("web")) as [Record<string, unknown>];
  t.like(whole, { Spec: { Name: "web", Labels: { "a.b": "c" }, Mode: { Replicated: { Replicas: 2 } } } });
  t.like((JSON.parse(await inspect("--format", "json", "web", "db")) as unknown[])[1], { Spec: { Name: "db" } });
  t.like(JSON.parse(await inspect("--format", "wire", "web")), { spec: { annotations: { name: "web" } } });
  t.is(await inspect("-f", '{{.Spec.Name}} {{index .Spec.Labels "a.b"}}', "web", "db"), "web c\ndb ");
  t.is(await inspect("-f", "{{json .Spec.Labels}}", "web"), '{"a.b":"c"}');
  t.is(await inspect("-f", "{{with .UpdateStatus}}{{.State}}{{else}}none{{end}}", "web"), "none");
  t.is(await inspect("-f", "{{.Spec.TaskTemplate.ContainerSpec.Hostname}}|{{.spec.annotations.name}}", "web"), "|web");
});

test("given several objects, the existing ones are shown or removed, and each missing one is reported", async (t) => {
  const { muster, manager } = await withServices(t);
  const shown = await muster("service", "inspect", "--format", "{{.Spec.Name}}", "no", "web", "nor");
  t.deepEqual(shown, {
    status: 1,
    lines: ["web"],
    remarks: ["muster: no such service: no\nmuster: no such service: nor"],
  });
  // As Docker's client does.
  t.deepEqual(await muster("service", "inspect", "no"), {
    status: 1,
    lines: ["[]"],
    remarks: ["muster: no such service: no"],
  });
  const removed = await muster("service", "rm", "no", "web");
  t.deepEqual(removed, { status: 1, lines: ["web"], remarks: ["muster: service no not found"] });
  t.is(manager.store.byName("service", "web"), undefined);
});

test("nodes are filtered, and shown for people", async (t) => {
  const { muster, manager } = await served(t);
  const labelled = NodeSpec.create({
    membership: 1,
    annotations: { name: "", labels: { zone: "eu" }, indices: [] },
    desiredRole: NodeRole.WORKER,
  });
  manager.seed("node", Node.patch(readyNode("n1", "alpha"), { spec: labelled }), readyNode("n2", "beta"));
  const names = async (...filters: string[]) =>
    (await muster("node", "ls", "--format", "{{.Hostname}}", ...filters.flatMap((text) => ["--filter", text]))).lines;
  t.deepEqual(await names("node.label=zone=eu"), ["alpha"]);
  t.deepEqual(await names("role=worker"), ["alpha", "beta"]);
  t.deepEqual(await names("name=b", "name=a", "role=worker"), ["alpha", "beta"]);
  t.deepEqual(await names("id=n2", "node.label=zone"), []);
  t.is((await muster("node", "ls", "--filter", "role=king")).status, 125);
  t.is((await muster("node", "ls", "--filter", "colour=red")).status, 125);
  const { lines } = await muster("node", "inspect", "--pretty", "alpha");
  t.false(
    lines.some((line) => line.includes("Session")),
    "another manager holds it",
  );
  manager.seed("node", readyNode("held", "gamma"));
  const held = (await muster("node", "inspect", "--pretty", "gamma")).lines.join("\n");
  t.true(held.includes("\n Session:              serving.connected\n"), held);
  t.is((await muster("why", "gamma")).lines[1], "  session:     serving.connected");
  t.true(lines.includes("Labels:") && lines.includes(" - zone=eu"));
  t.regex(lines.join("\n"), /^ State: +Ready$/m);
});

test("networks are filtered as Docker filters them", async (t) => {
  const { muster } = await served(t);
  await muster("network", "create", "--label", "tier=back", "back");
  await muster("network", "create", "front");
  const names = async (filter: string) =>
    (await muster("network", "ls", "--filter", filter, "--format", "{{.Name}}")).lines;
  t.deepEqual(await names("name=ac"), ["back"]);
  t.deepEqual(await names("label=tier"), ["back"]);
  t.deepEqual(await names("scope=local"), []);
  t.is((await muster("network", "ls", "--filter", "colour=red")).status, 125);
  t.is((await muster("network", "inspect", "--format", "{{.Name}} {{.Scope}}", "back")).lines[0], "back swarm");
});

test("events are printed by a template of Docker's names; one that does not fit ends the command", async (t) => {
  const { musterWith, muster, manager } = await served(t);
  const first = Promise.withResolvers<string>();
  const format = "{{.Type}} {{.Action}} {{.Actor.Attributes.name}} {{.Actor.ID}} {{.object.id}}";
  void musterWith((line) => first.resolve(line), "events", "--filter", "type=node", "--format", format);
  const bad = musterWith(() => undefined, "events", "--filter", "type=node", "--format", "{{.Nope}}");
  const failed = { done: false };
  void bad.then(() => (failed.done = true));
  for (let turn = 0; turn < 100 && !failed.done; turn += 1) {
    manager.seed("node", readyNode(`n${turn}`, `host${turn}`));
    await muster("node", "ls", "-q");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  t.regex(await first.promise, /^node create host\d+ (n\d+) \1$/);
  t.like(await bad, { status: 1 });
});

test("events in JSON have the names of the templates, with times and commands as text", async (t) => {
  const { musterWith, muster } = await served(t);
  const lines: string[] = [];
  void musterWith((line) => void lines.push(line), "events", "--filter", "type=service", "--format", "json");
  for (let turn = 0; turn < 100 && lines.length === 0; turn += 1) {
    const named = ["--name", `web${turn}`, "--driver", "exec", "--env", "A=1"];
    const made = await muster("service", "create", "-d", ...named, "/bin/sleep", "60");
    t.is(made.status, 0, made.remarks.join());
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const event = JSON.parse(lines[0] ?? "") as Record<string, unknown>;
  t.like(event, { Type: "service", Action: "create", Scope: "swarm" });
  t.deepEqual(Object.keys(event), ["Type", "Action", "Actor", "Scope", "Time", "TimeNano", "Version", "Object"]);
  const { CreatedAt, Spec } = event["Object"] as {
    readonly CreatedAt: string;
    readonly Spec: { readonly TaskTemplate: { readonly GenericSpec: object } };
  };
  t.regex(CreatedAt, /^\d{4}-\d\d-\d\dT/);
  t.like(Spec.TaskTemplate.GenericSpec, { Kind: "exec", Exec: { Command: "/bin/sleep", Args: ["60"], Env: ["A=1"] } });
});

test("info summarises the cluster, with Docker's names where Docker has them", async (t) => {
  const { muster, manager } = await withServices(t);
  manager.seed("node", readyNode("n1", "alpha"));
  const service = manager.store.byName("service", "web");
  if (service === undefined) throw new Error("no service");
  manager.seed("task", taskOf(service, 1, "n1", TaskState.RUNNING));
  const { lines } = await muster("info");
  t.true(lines.some((line) => /^Nodes: +2 \(2 ready\)$/.test(line)));
  t.true(lines.some((line) => /^Tasks: +1 of 1 running$/.test(line)));
  const told = await muster("info", "--format", "{{.Swarm.LocalNodeState}} {{.Swarm.NodeID}} {{.Services}}");
  t.deepEqual(told.lines, ["active manager1 2"]);
});

test("a table is cut to the terminal, widest columns first, never the id", (t) => {
  const headings = ["ID", "NAME", "COMMAND"];
  const rows = [["0123456789ab", "web.1", "starting container failed: no such file or directory: unknown"]];
  const cut = formatTable(headings, rows, 50).split("\n");
  t.true(cut.every((line) => textWidth(line) <= 50));
  t.regex(cut[1] ?? "", /^0123456789ab {3}web\.1 +starting container .*…$/);
  t.is(formatTable(headings, rows, null).split("\n")[1]?.endsWith("unknown"), true);
  t.is(formatTable(headings, rows), formatTable(headings, rows, 500));
  t.regex(formatTable(headings, rows, 1).split("\n")[1] ?? "", /^0123456789ab /);
});

test("a table that is too wide loses its empty columns, and never a part of an error", (t) => {
  const headings = ["ID", "NAME", "IMAGE", "NODE", "DESIRED STATE", "CURRENT STATE", "ERROR", "PORTS"];
  const error = '"starting container failed: no such file or directory"';
  const rows = [
    [
      "0123456789ab",
      "web.1",
      "registry.example:5000/team/web:1",
      "alpha",
      "Running",
      "Failed 2 minutes ago",
      error,
      "",
    ],
  ];
  const [head = "", row = ""] = formatTable(headings, rows, 80).split("\n");
  t.regex(head, /^ID +NAME +IMAGE +NODE +DESIRED STATE +CURRENT STATE +ERROR$/);
  t.regex(
    row,
    /^0123456789ab +web\.1 +registr… +alpha +Running +Failed 2 min… +"starting container failed: no such file or directory"$/,
  );
  const [quiet = "", fine = ""] = formatTable(headings, [rows[0]?.with(6, "") ?? []], 80).split("\n");
  t.regex(quiet, /^ID +NAME +IMAGE +NODE +DESIRED STATE +CURRENT STATE$/);
  t.true(textWidth(fine) <= 80, fine);
  // Nothing is dropped if it fits or there is no terminal.
  for (const width of [null, 500]) t.regex(formatTable(headings, rows, width), /ERROR +PORTS$/m);
  t.regex(formatTable(headings, [], 20), /PORTS$/);
});

test("a table whose headings alone are too wide narrows its column gaps, then cuts its headings", (t) => {
  const widthsAt = (headings: readonly string[], row: readonly string[]): readonly string[] => {
    const lines = formatTable(headings, [row], 80).split("\n");
    t.true(textWidth(lines[0] ?? "") <= 80, lines[0]);
    return lines;
  };
  const nodes = ["ID", "HOSTNAME", "STATUS", "AVAILABILITY", "MANAGER STATUS", "ENGINE VERSION"];
  const node = widthsAt(nodes, ["x9ysv5jp86ni24rvaykedzpg1 *", "vm", "Ready", "Active", "Leader", "0.1.0"]);
  t.regex(node[0] ?? "", /^ID +HOSTNAME STATUS +AVAILABI.* MANAGER .*… ENGINE .*…$/);
  t.regex(node[1] ?? "", /^x9ysv5jp86ni24rvaykedzpg1 \* +vm +Ready +Active +Leader +0\.1\.0$/);
  t.true(textWidth(node[1] ?? "") <= 80);
  const error = '"no suitable node (scheduling constraints not satisfied on 2 nodes)"';
  const tasks = ["ID", "NAME", "IMAGE", "NODE", "DESIRED STATE", "CURRENT STATE", "ERROR"];
  const task = widthsAt(tasks, [
    "0123456789ab",
    "web.1-long",
    "nginx:latest",
    "alpha-beta",
    "Running",
    "Pending",
    error,
  ]);
  t.regex(task[0] ?? "", /DESIRED STATE CURRENT STATE ERROR$/);
  t.true(task[1]?.endsWith(error));
});

test("the tables of a plan fit the terminal, and their reasons stay whole", async (t) => {
  const { muster, manager } = await served(t, { width: 80 });
  manager.seed("node", readyNode("a-node-with-a-long-id", "a-node-with-a-very-long-hostname"));
  const { lines } = await muster("service", "plan", "create", "--name", "a-service-with-a-long-name", "nginx");
  const step = lines.find((line) => line.startsWith("at once")) ?? "";
  t.regex(step, /^at once +create +a-servi… +a-node-… +the service is new; .*could run it$/);
});

test("wide characters take two columns, joined ones one, and control sequences none", (t) => {
  t.is(textWidth("日本"), 4);
  t.is(textWidth("e\u0301"), 1);
  t.is(textWidth("👩‍👩‍👧"), 2);
  t.is(textWidth("한글ｱ"), 5);
  t.is(cutTo("日本語", 5), "日本…");
  t.is(cutTo("日本語", 4), "日…");
  t.is(printable("a\u001b[2Jb\nc"), "a [2Jb c");
  t.is(formatTable(["NAME", "X"], [["日本語日本語", "1"]]).split("\n")[1], "日本語日本語   1");
});
