// Names and virtual addresses of services among agents' tasks: real name servers, rules and packets, on machines that are
// namespaces.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { removeTaskNamespaces } from "../support/task-namespaces.ts";

const real = labMissing() === null ? test.serial : test.serial.skip;
const dataplane = fileURLToPath(new URL("../../bin/muster-dataplane-nft", import.meta.url));

/** Answers with its own address. */
const server = `require("net").createServer((peer) => {
  peer.on("error", () => {});
  peer.end(peer.localAddress);
}).listen(80, "0.0.0.0");`;

/** Prints as JSON: for each `?NAME`, its addresses from the task's own resolver; for each other word, who answers there. */
const client = `const dns = require("dns").promises, net = require("net");
const lookup = (name) => dns.lookup(name, { all: true, family: 4 }).then((all) => all.map((each) => each.address).sort().join(" "), (error) => error.code);
const reach = (host) => new Promise((resolve) => {
  const peer = net.connect(80, host);
  peer.once("data", (data) => resolve(data.toString()));
  peer.once("error", (error) => resolve(error.code));
  setTimeout(() => resolve("silence"), 5000).unref();
});
Promise.all(process.argv.slice(1).map((word) => word[0] === "?" ? lookup(word.slice(1)) : reach(word)))
  .then((found) => { console.log(JSON.stringify(found)); process.exit(0); });`;

interface Row {
  readonly ID: string;
  readonly Name: string;
  readonly CurrentState: string;
}

/** The running tasks of a service, once there are this many. */
async function running(manager: TestManager, service: string, count: number): Promise<readonly Row[]> {
  let rows: readonly Row[] = [];
  await until(`${count} tasks of ${service}`, async () => {
    const all = await manager.json<Row>("service", "ps", service, "--no-trunc");
    rows = all.filter(({ CurrentState }) => CurrentState.startsWith("Running"));
    return rows.length === count;
  });
  return rows;
}

async function only(manager: TestManager, service: string): Promise<string> {
  const [row] = await running(manager, service, 1);
  return row?.ID ?? "";
}

async function from(manager: TestManager, task: string, ...words: readonly string[]): Promise<readonly string[]> {
  const shown = await manager.muster("task", "exec", task, process.execPath, "-e", client, ...words);
  return JSON.parse(shown) as readonly string[];
}

real("tasks find services by name, and reach each of their tasks by the virtual address", async (t) => {
  const { hub, machines } = startLab(t, 1);
  const machine = machines[0] as Machine;
  // As on any machine, traffic to unassigned addresses leaves there.
  await machine.run("ip", "route", "add", "default", "via", hub.address);
  const manager = await startManager(t, { on: machine });
  const agent = await startAgent(t, manager, { on: machine, hostname: "one" });
  removeTaskNamespaces(t, agent.dataDir);
  await manager.muster("network", "create", "back");
  await manager.muster("network", "create", "apart");
  const create = ["service", "create", "-d", "--driver", "exec", "--stop-signal", "SIGKILL", "--network"];
  const serves = ["--", process.execPath, "-e", server];
  await manager.muster(...create, "name=back,alias=www", "--name", "web", "--replicas", "2", ...serves);
  await manager.muster(...create, "back", "--name", "rr", "--endpoint-mode", "dnsrr", ...serves);
  await manager.muster(...create, "back", "--name", "ask", "--", "sleep", "1000");
  await manager.muster(...create, "apart", "--name", "other", "--", "sleep", "1000");
  const web = await running(manager, "web", 2);
  await running(manager, "rr", 1);
  const [ask, other] = [await only(manager, "ask"), await only(manager, "other")];
  const asks = (...words: readonly string[]): Promise<readonly string[]> => from(manager, ask, ...words);

  let replicas: readonly string[] = [];
  await until("both names to resolve", async () => {
    replicas = (await asks("?tasks.web"))[0]?.split(" ") ?? [];
    return replicas.length === 2;
  });
  const [virtual = "", www, single, tasksOf, one, two] = await asks(
    "?web",
    "?www.back",
    "?rr",
    "?tasks.rr",
    ...web.map(({ Name, ID }) => `?${Name.includes(ID) ? Name : `${Name}.${ID}`}`),
  );
  t.regex(virtual, /^10[.]/);
  t.false(replicas.includes(virtual));
  t.is(www, virtual);
  t.deepEqual([single, tasksOf], [single, single]);
  t.deepEqual(new Set([one, two]), new Set(replicas));

  // Each replica in turn, also from one of them, which may reach itself.
  const reached = async (task: string): Promise<void> => {
    const all = new Set<string>();
    await until("all replicas to answer", async () => {
      for (const answer of await from(manager, task, ...Array.from({ length: 8 }, () => "web"))) all.add(answer);
      return replicas.every((each) => all.has(each));
    });
    t.deepEqual([...all].toSorted(), [...replicas]);
  };
  await reached(ask);
  await reached(web[0]?.ID ?? "");

  // A task cannot resolve or reach anything of a network that it is not in.
  const [name, address] = await from(manager, other, "?web.back", virtual);
  t.regex(name ?? "", /^E(AI_AGAIN|NOTFOUND)$/);
  t.notRegex(address ?? "", /^10/);

  await manager.muster("service", "scale", "-d", "web=1");
  await until("one name to resolve", async () => (await asks("?tasks.web"))[0]?.includes(" ") === false);
  const [left = ""] = await asks("?tasks.web");
  const after = await asks(...Array.from({ length: 8 }, () => "web"));
  t.deepEqual([...new Set(after)], [left]);
  await manager.muster("service", "scale", "-d", "web=0");
  await until("connections to be refused", async () => (await asks("web"))[0] === "ECONNREFUSED");
  t.deepEqual(await asks("?web"), [virtual]);

  // The name server's setup is removed with the last task.
  t.regex(await machine.run("ip", "address", "show", "dev", "lo"), /169\.254\./);
  await manager.muster("service", "rm", "web", "rr", "ask", "other");
  await until("everything to be removed", async () => {
    const addresses = await machine.run("ip", "address", "show", "dev", "lo");
    const tables = await machine.run("/usr/sbin/nft", "list", "tables");
    return !/169\.254\./.test(addresses) && !/muster-services/.test(tables);
  });
});

real("across nodes, and under policies, names and virtual addresses behave the same", async (t) => {
  const { hub, machines } = startLab(t, 2);
  const manager = await startManager(t, { on: hub });
  const args = ["--dataplane-driver", dataplane];
  const agents = await Promise.all(
    machines.map((machine) => startAgent(t, manager, { on: machine, hostname: machine.name, args })),
  );
  for (const { dataDir } of agents) removeTaskNamespaces(t, dataDir);
  await manager.muster("network", "create", "back");
  const create = ["service", "create", "-d", "--driver", "exec", "--stop-signal", "SIGKILL", "--network", "back"];
  const web = [...create, "--name", "web", "--replicas", "2", "--replicas-max-per-node", "1"];
  await manager.muster(...web, "--", process.execPath, "-e", server);
  await manager.muster(...create, "--name", "ask", "--", "sleep", "1000");
  await running(manager, "web", 2);
  const ask = await only(manager, "ask");
  let replicas: readonly string[] = [];
  await until("both names to resolve", async () => {
    replicas = (await from(manager, ask, "?tasks.web"))[0]?.split(" ") ?? [];
    return replicas.length === 2;
  });
  const reached = new Set<string>();
  await until("both to answer", async () => {
    for (const answer of await from(manager, ask, ...Array.from({ length: 8 }, () => "web"))) reached.add(answer);
    return replicas.every((each) => reached.has(each));
  });

  // Policies see the real destination and do not affect queries to the node.
  const file = join(tempDir(t, "policy"), "policy.yaml");
  writeFileSync(
    file,
    `kind: NetworkPolicy
metadata: { name: closed }
spec: { selector: "service == 'web'", ingress: [{ action: deny }] }
---
kind: NetworkPolicy
metadata: { name: silent }
spec: { selector: "service == 'ask'", types: [egress], egress: [{ action: deny }] }
`,
  );
  await manager.muster("policy", "apply", "-f", file);
  await until("no answers to arrive", async () => {
    const answers = await from(manager, ask, ...Array.from({ length: 4 }, () => "web"));
    return answers.every((each) => each === "silence");
  });
  t.is((await from(manager, ask, "?tasks.web"))[0], replicas.join(" "));
});
