import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { UsageError } from "../../lib/user-error.ts";
import { networkSpec, type NetworkFlags } from "../../cli/network/spec.ts";
import {
  Annotations,
  Endpoint,
  Network,
  NetworkAttachment,
  NetworkSpec,
  Node,
  NodeStatus,
  PortConfig,
  Service,
  Task,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { readyNode, served, taskOf } from "../support/served.ts";

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));

test("network create creates an overlay network as Docker's command line does", async (t) => {
  const { muster, manager } = await served(t);
  const flags =
    "-d overlay --attachable --internal --ipv6 --scope swarm --subnet 10.9.0.0/16 --ip-range=10.9.8.0/24" +
    " --gateway 10.9.0.9 --subnet fd00:9::/64 --aux-address router=10.9.0.8 -o encrypted --opt mtu=1400" +
    " --label team=a --ipam-driver default --ipam-opt x=y";
  const { lines, remarks } = await muster("network", "create", ...flags.split(" "), "back");
  t.deepEqual(remarks, []);
  const network = manager.store.byName("network", "back");
  t.deepEqual(lines, [network?.id ?? ""]);
  t.like(network?.spec, { attachable: true, internal: true, ipv6Enabled: true, ingress: false });
  t.deepEqual(network?.spec?.annotations?.labels, { team: "a" });
  t.like(network?.spec?.driverConfig, { name: "overlay" });
  t.deepEqual(network?.spec?.driverConfig?.options, { encrypted: "", mtu: "1400" });
  t.like(network?.spec?.ipam?.driver, { name: "default", options: { x: "y" } });
  t.like(network?.spec?.ipam?.configs[0], { subnet: "10.9.0.0/16", range: "10.9.8.0/24", gateway: "10.9.0.9" });
  t.deepEqual(network?.spec?.ipam?.configs[0]?.reserved, { router: "10.9.0.8" });
  t.like(network?.spec?.ipam?.configs[1], { subnet: "fd00:9::/64", range: "", gateway: "" });
});

const refused = test.macro((t, flags: NetworkFlags, sentence: RegExp) => {
  t.regex(t.throws(() => networkSpec("n", flags), { instanceOf: UsageError }).message, sentence);
});

test("an invalid subnet", refused, { subnet: ["10.0.0.0"] }, /"--subnet" flag: expected a range/);
test("overlapping subnets", refused, { subnet: ["10.0.0.0/8,10.1.0.0/16"] }, /10.1.0.0\/16 overlaps --subnet 10.0/);
test(
  "a gateway outside of the subnet",
  refused,
  { subnet: ["10.0.0.0/24"], gateway: ["10.0.1.1"] },
  /no --subnet contains --gateway/,
);
test("a gateway without a subnet", refused, { gateway: ["10.0.1.1"] }, /no --subnet contains --gateway 10.0.1.1/);
test(
  "two gateways",
  refused,
  { subnet: ["10.0.0.0/24"], gateway: ["10.0.0.1", "10.0.0.2"] },
  /has more than one --gateway: 10.0.0.1 and 10.0.0.2/,
);
test(
  "two ranges",
  refused,
  { subnet: ["10.0.0.0/16"], "ip-range": ["10.0.1.0/24", "10.0.2.0/24"] },
  /has more than one --ip-range/,
);
test("a scope of one engine", refused, { scope: "local" }, /"--scope" flag: expected swarm/);
test("a network without IPv4", refused, { ipv4: false }, /every cluster network/);
test("a config-only network", refused, { "config-only": true }, /--config-only creates a network of one engine/);

test("network ls hides the objects for each engine's own network; inspect and rm find by name and prefix", async (t) => {
  const { muster, manager } = await served(t);
  await muster("network", "create", "back");
  const id = manager.store.byName("network", "back")?.id ?? "";
  const labels = { "com.docker.swarm.predefined": "true" };
  manager.seed(
    "network",
    Network.create({
      id: "hostnet",
      spec: NetworkSpec.create({ annotations: Annotations.create({ name: "host", labels }) }),
    }),
  );
  const { lines } = await muster("network", "ls");
  t.regex(lines[0] ?? "", /^NETWORK ID +NAME +DRIVER +SCOPE$/);
  const row = lines.find((line) => line.includes("back")) ?? "";
  t.regex(row, /^\w{12} +back +overlay +swarm$/);
  t.false(lines.some((line) => line.includes("host")));
  t.true((await muster("network", "ls", "-q")).lines.includes(id));
  const json = (await muster("network", "ls", "--format=json")).lines.map((line) => JSON.parse(line) as object);
  t.like(
    json.find((object) => (object as { ID: string }).ID === id),
    { ID: id, Name: "back", Driver: "overlay", Scope: "swarm" },
  );
  const [shown] = JSON.parse((await muster("network", "inspect", id.slice(0, 8))).lines.join("\n")) as [{ Id: string }];
  t.is(shown.Id, id);
  t.deepEqual((await muster("network", "rm", "nothing")).remarks, ["muster: network nothing not found"]);
  t.deepEqual(await muster("network", "rm", "-f", "nothing", "back"), { status: 0, lines: ["back"], remarks: [] });
  t.is((await muster("network", "rm", "--force", "host")).status, 1, "--force only ignores missing ones");
  t.is(manager.store.get("network", id), undefined);
});

test("a network in use is not removed, and an invalid one is rejected, in the cluster's words", async (t) => {
  const { muster, manager } = await served(t);
  await muster("network", "create", "back");
  const id = manager.store.byName("network", "back")?.id ?? "";
  await muster("service", "create", "-d", "--name", "web", "--network", id, "bb:1");
  const service = manager.store.byName("service", "web")?.id ?? "";
  t.deepEqual((await muster("network", "rm", "back")).remarks, [
    `muster: network ${id} is in use by service ${service}`,
  ]);
  t.is((await muster("network", "rm", "--force", "back")).status, 1);
  await muster("network", "create", "idle");
  const named = async (...texts: string[]) =>
    (await muster("network", "ls", ...texts.flatMap((text) => ["--filter", text]), "--format", "{{.Name}}")).lines;
  t.deepEqual(await named("dangling=true"), ["idle"]);
  t.deepEqual(await named("dangling=0"), ["back", "ingress"]);
  t.deepEqual(await named("dangling=1", "dangling=false", "name=a"), ["back"], "values of one key are alternatives");
  t.regex((await muster("network", "ls", "-f", "dangling=x")).remarks[0] ?? "", /"dangling=x": expected true or false/);
  t.regex((await muster("network", "create", "back")).remarks[0] ?? "", /network back already exists/);
  t.regex((await muster("network", "create", "bad name")).remarks[0] ?? "", /must be valid as a DNS name component/);
});

test("network inspect --verbose shows the tasks on a network with their addresses", async (t) => {
  const { muster, manager } = await served(t);
  const named = (name: string) => manager.store.byName("network", name) as Network;
  await muster("network", "create", "back");
  const node = readyNode("n1", "alpha");
  manager.seed(
    "node",
    Node.patch(node, { status: NodeStatus.patch(node.status as NodeStatus, { addr: "192.0.2.7" }) }),
  );
  for (const name of ["web", "api", "other"]) await muster("service", "create", "-d", "--name", name, "bb:1");
  const [web, api, other] = ["web", "api", "other"].map((name) => manager.store.byName("service", name) as Service);
  const endpoint = Endpoint.create({
    virtualIps: ["back", "ingress"].map((name) => ({ networkId: named(name).id, addr: "10.9.0.2/24" })),
    ports: [PortConfig.create({ targetPort: 80, publishedPort: 8080 })],
  });
  manager.seed("service", Service.patch(web as Service, { endpoint }));
  const on = (address: string) => ({
    networks: [NetworkAttachment.create({ network: named("back"), addresses: [`${address}/24`] })],
  });
  manager.seed(
    "task",
    taskOf(web as Service, 10, "n1", TaskState.RUNNING, on("10.9.0.4")),
    taskOf(web as Service, 2, "n1", TaskState.RUNNING, on("10.9.0.3")),
    taskOf(web as Service, 3, "n1", TaskState.STARTING, on("10.9.0.5")),
    taskOf(api as Service, 1, "gone", TaskState.RUNNING, on("10.9.0.6")),
    taskOf(other as Service, 1, "n1", TaskState.RUNNING),
  );
  const shown = async (...args: string[]) =>
    JSON.parse((await muster("network", "inspect", ...args)).lines.join("\n")) as [{ Services?: unknown }];
  const task = (service: Service | undefined, name: string, slot: number, EndpointIP: string, host: string) => ({
    Name: `${name}.${slot}.${service?.id.slice(0, 20)}t${slot}`,
    EndpointIP,
    Info: { "Host IP": host },
  });
  t.deepEqual((await shown("-v", "back"))[0].Services, {
    api: { VIP: "", Ports: [], Tasks: [task(api, "api", 1, "10.9.0.6", "")] },
    web: {
      VIP: "10.9.0.2",
      Ports: [],
      Tasks: [task(web, "web", 2, "10.9.0.3", "192.0.2.7"), task(web, "web", 10, "10.9.0.4", "192.0.2.7")],
    },
  });
  t.deepEqual((await shown("--verbose", "ingress"))[0].Services, {
    web: { VIP: "10.9.0.2", Ports: ["Target: 80, Publish: 8080"], Tasks: [] },
  });
  t.false("Services" in (await shown("back"))[0]);
});

/** Runs a command as a process, which prompts on its standard input. */
async function asked(t: ExecutionContext, socket: string, args: readonly string[], answer: string) {
  const child = spawn(process.execPath, [main, "--host", socket, ...args]);
  t.teardown(() => child.kill("SIGKILL"));
  let [out, err] = ["", ""];
  child.stdout.on("data", (data: Buffer) => (out += data.toString()));
  child.stderr.on("data", (data: Buffer) => (err += data.toString()));
  child.stdin.write(answer);
  const isEnd = !answer.endsWith("\n");
  if (isEnd) child.stdin.end();
  const [ended] = (await once(child, "close")) as [number];
  return { ended, out, err };
}

test("network rm prompts before it removes the ingress network, forced or not", async (t) => {
  const { muster, manager, socket } = await served(t);
  await muster("network", "create", "back");
  const hasIngress = () => manager.store.byName("network", "ingress") !== undefined;
  for (const args of [
    ["network", "rm", "ingress"],
    ["network", "rm", "--force", "ingress", "back"],
  ]) {
    const { ended, out, err } = await asked(t, socket, args, "n\n");
    t.is(ended, 0);
    t.is(out, args.includes("back") ? "back\n" : "", "the others are removed");
    t.regex(err, /^WARNING! This is the ingress network\. .*\nAre you sure you want to continue\? \[y\/N\] $/);
    t.true(hasIngress());
  }
  t.like(await asked(t, socket, ["network", "rm", "ingress"], "y\n"), { ended: 0, out: "ingress\n" });
  t.false(hasIngress());
});

test("network prune removes networks used by neither a service nor a task, after a prompt", async (t) => {
  const { muster, manager, socket } = await served(t);
  const remaining = () =>
    Array.from(manager.store.all("network"), ({ spec }) => spec?.annotations?.name ?? "").toSorted();
  for (const name of ["used", "stopping", "idle", "labelled"]) {
    await muster("network", "create", ...(name === "labelled" ? ["--label", "keep=yes"] : []), name);
  }
  const idOf = (name: string) => manager.store.byName("network", name)?.id ?? "";
  await muster("service", "create", "-d", "--name", "web", "--network", idOf("used"), "bb:1");
  const attached = NetworkAttachment.create({ network: manager.store.byName("network", "stopping") ?? null });
  const status = TaskStatus.create({ state: TaskState.RUNNING });
  const leaving = { id: "t1", desiredState: TaskState.SHUTDOWN, networks: [attached], status };
  manager.seed("task", Task.create(leaving));
  const all = remaining();
  t.deepEqual(all, ["bridge", "host", "idle", "ingress", "labelled", "stopping", "used"]);

  const prune = ["network", "prune", "--filter", "label!=keep=yes"];
  const question =
    "WARNING! This will remove all networks not used by at least one service or task.\n" +
    "Are you sure you want to continue? [y/N] ";
  for (const answer of ["n\n", "\n", "yes\n", ""])
    t.deepEqual(await asked(t, socket, prune, answer), { ended: 0, out: "", err: question });
  t.deepEqual(remaining(), all);
  t.deepEqual(await asked(t, socket, prune, "Y\n"), { ended: 0, out: "Deleted Networks:\nidle\n", err: question });
  t.deepEqual(
    remaining(),
    all.filter((name) => name !== "idle"),
  );

  const quietly = (...flags: string[]) => muster("network", "prune", "-f", ...flags);
  for (const flags of [
    ["--filter", "label=other"],
    ["--filter", "label=keep=no"],
    ["--filter", "until=1000h"],
  ])
    t.deepEqual(await quietly(...flags), { status: 0, lines: [], remarks: [] }, flags.join(" "));
  t.deepEqual((await quietly("--filter", "label=keep", "--filter", "until=2100-01-01")).lines, [
    "Deleted Networks:",
    "labelled",
  ]);
  manager.seed("task", Task.create({ ...leaving, status: TaskStatus.create({ state: TaskState.SHUTDOWN }) }));
  t.deepEqual((await quietly()).lines, ["Deleted Networks:", "stopping"]);
  t.deepEqual(remaining(), ["bridge", "host", "ingress", "used"]);
  t.is(
    (await quietly("--filter", "name=used")).remarks[0],
    'muster: invalid filter "name=used": expected label=, label!= or until=',
  );
  t.is((await quietly("--filter", "until=yesterday")).status, 125);
});
