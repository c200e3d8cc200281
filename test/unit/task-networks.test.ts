// The networks of tasks: the decisions for a task, the resulting lines for ip and nft, and their state through deaths.
import test from "ava";
import { TaskNetworks } from "../../actors/agent/task-networks.ts";
import { makeInTask, makeOnNode, settingsFor, unmake } from "../../machines/driver/task-network/commands.ts";
import { networkOf, type NetworkPlan } from "../../machines/driver/task-network/plan.ts";
import { rulesetOf } from "../../machines/driver/task-network/rules.ts";
import { interfaceOf } from "../../machines/policy/facts.ts";
import {
  Annotations,
  ContainerSpec,
  Driver,
  Endpoint,
  IPAMConfig,
  IPAMOptions,
  Network,
  NetworkAttachment,
  NetworkSpec,
  PortConfig,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  Task,
  TaskSpec,
} from "../../proto/gen/messages.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { NetworkMachine } from "../../simulation/nodes/network-machine.ts";

type Subnet = readonly [subnet: string, gateway: string];

function network(id: string, subnets: readonly Subnet[], spec: Partial<NetworkSpec> = {}): Network {
  const configs = subnets.map(([subnet, gateway]) => IPAMConfig.create({ subnet, gateway }));
  const annotations = Annotations.create({ name: `net-${id}` });
  return Network.create({
    id,
    spec: NetworkSpec.create({ annotations, ...spec }),
    ipam: IPAMOptions.create({ configs }),
  });
}

const front = network("front", [
  ["10.0.1.0/24", "10.0.1.1"],
  ["fd00:1::/64", "fd00:1::1"],
]);
const back = network("back", [["10.0.2.0/24", "10.0.2.1"]], { internal: true });
const secret = network("secret", [["10.0.3.0/24", "10.0.3.1"]], {
  driverConfig: Driver.create({ name: "overlay", options: { encrypted: "" } }),
});

function taskOn(id: string, networks: readonly (readonly [Network, ...string[]])[], ports: readonly PortConfig[] = []) {
  return Task.create({
    id,
    networks: networks.map(([of, ...addresses]) => NetworkAttachment.create({ network: of, addresses })),
    endpoint: Endpoint.create({ ports: [...ports] }),
  });
}

function planOf(...of: Parameters<typeof taskOn>): NetworkPlan {
  const decision = networkOf(taskOn(...of));
  if (decision.kind !== "plan") throw new Error(JSON.stringify(decision));
  return decision.plan;
}

const hostPort = PortConfig.create({
  name: "http",
  targetPort: 80,
  publishedPort: 8080,
  publishMode: PortConfig_PublishMode.HOST,
});

test("a task without networks is in the node's; one with them has a link for each, named as its endpoint", (t) => {
  t.deepEqual(networkOf(Task.create({ id: "t1" })), { kind: "none" });
  const plan = planOf(
    "t1",
    [
      [front, "10.0.1.5/24", "fd00:1::5/64"],
      [back, "10.0.2.5/24"],
    ],
    [hostPort],
  );
  t.deepEqual(
    plan.links.map(({ hostInterface, isInternal, network: name, taskInterface }) => ({
      hostInterface,
      isInternal,
      name,
      taskInterface,
    })),
    [
      { hostInterface: interfaceOf("t1", "front"), isInternal: false, name: "net-front", taskInterface: "eth0" },
      { hostInterface: interfaceOf("t1", "back"), isInternal: true, name: "net-back", taskInterface: "eth1" },
    ],
  );
  t.deepEqual(plan.ports, [{ name: "http", protocol: "tcp", nodePort: 8080, taskPort: 80 }]);
  t.regex(plan.links[0]?.taskMac ?? "", /^02(:[0-9a-f]{2}){5}$/);
  t.not(plan.links[0]?.taskMac, plan.links[1]?.taskMac);
});

test("a process's named port without a host port is not published on the node", (t) => {
  const named = PortConfig.patch(hostPort, { publishedPort: 0, name: "sql" });
  t.deepEqual(
    planOf("t", [[back, "10.0.2.5/24"]], [named, hostPort]).ports.map(({ name }) => name),
    ["http"],
  );
});

const refusals: readonly (readonly [what: string, task: Task, reason: RegExp])[] = [
  [
    "the routing mesh",
    taskOn("t", [[network("i", [["10.0.0.0/24", "10.0.0.1"]], { ingress: true }), "10.0.0.5/24"]]),
    /mode=host/,
  ],
  ["a network without addresses", taskOn("t", [[network("host", [])]]), /network net-host has no address/],
  ["an encrypted network", taskOn("t", [[secret, "10.0.3.5/24"]]), /network net-secret is encrypted/],
  [
    "an address outside every subnet",
    taskOn("t", [[back, "10.9.9.9/24"]]),
    /10\.9\.9\.9\/24 is in none of the subnets of network net-back/,
  ],
  [
    "a dynamic port",
    taskOn("t", [[back, "10.0.2.5/24"]], [PortConfig.patch(hostPort, { publishedPort: 0, name: "" })]),
    /published port 80 needs a fixed port/,
  ],
  [
    "a container's dynamic port with a name",
    Task.patch(taskOn("t", [[back, "10.0.2.5/24"]], [PortConfig.patch(hostPort, { publishedPort: 0 })]), {
      spec: TaskSpec.create({ container: ContainerSpec.create({ image: "nginx:1" }) }),
    }),
    /published port 80 needs a fixed port/,
  ],
];
for (const [what, task, reason] of refusals)
  test(`TN2: ${what} is rejected`, (t) => {
    const decision = networkOf(task);
    t.is(decision.kind, "refused");
    t.regex(decision.kind === "refused" ? decision.reason : "", reason);
  });

test("the lines for ip, of two networks and both families", (t) => {
  const plan = planOf("t1", [
    [front, "10.0.1.5/24", "fd00:1::5/64"],
    [back, "10.0.2.5/24"],
  ]);
  const [one, two] = plan.links.map(({ hostInterface }) => hostInterface);
  const [mac, mac2] = plan.links.map(({ taskMac }) => taskMac);
  t.deepEqual(makeOnNode(plan, "mst-0-t1", 1_430), [
    "netns add mst-0-t1",
    `link add ${one} mtu 1430 address ee:ee:ee:ee:ee:ee type veth peer name eth0 mtu 1430 address ${mac} netns mst-0-t1`,
    `link set ${one} up`,
    `address add 10.0.1.1/32 dev ${one}`,
    `neigh replace 10.0.1.5 lladdr ${mac} dev ${one} nud permanent`,
    `route replace 10.0.1.5/32 dev ${one} src 10.0.1.1`,
    `address add fd00:1::1/128 dev ${one} nodad`,
    `neigh replace fd00:1::5 lladdr ${mac} dev ${one} nud permanent`,
    `route replace fd00:1::5/128 dev ${one} src fd00:1::1`,
    `link add ${two} mtu 1430 address ee:ee:ee:ee:ee:ee type veth peer name eth1 mtu 1430 address ${mac2} netns mst-0-t1`,
    `link set ${two} up`,
    `address add 10.0.2.1/32 dev ${two}`,
    `neigh replace 10.0.2.5 lladdr ${mac2} dev ${two} nud permanent`,
    `route replace 10.0.2.5/32 dev ${two} src 10.0.2.1`,
  ]);
  t.deepEqual(makeInTask(plan), [
    "link set lo up",
    "address add 10.0.1.5/32 dev eth0",
    "address add fd00:1::5/128 dev eth0 nodad",
    "link set eth0 up",
    "neigh replace 10.0.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent",
    "route replace 10.0.1.0/24 via 10.0.1.1 dev eth0 onlink src 10.0.1.5",
    "route replace 0.0.0.0/0 via 10.0.1.1 dev eth0 onlink src 10.0.1.5",
    "neigh replace fd00:1::1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent",
    "route replace fd00:1::/64 via fd00:1::1 dev eth0 onlink src fd00:1::5",
    "route replace ::/0 via fd00:1::1 dev eth0 onlink src fd00:1::5",
    "address add 10.0.2.5/32 dev eth1",
    "link set eth1 up",
    "neigh replace 10.0.2.1 lladdr ee:ee:ee:ee:ee:ee dev eth1 nud permanent",
    "route replace 10.0.2.0/24 via 10.0.2.1 dev eth1 onlink src 10.0.2.5",
  ]);
  t.deepEqual(unmake(plan.links, "mst-0-t1"), [`link del ${one}`, `link del ${two}`, "netns del mst-0-t1"]);
  t.deepEqual(settingsFor(plan), { "net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1" });
  // A driver's namespace is the driver's to remove.
  t.deepEqual(
    makeOnNode(plan, "/proc/1/ns/net", 1_430).filter((line) => line.startsWith("netns")),
    [],
  );
  t.deepEqual(unmake(plan.links, "/proc/1/ns/net"), [`link del ${one}`, `link del ${two}`]);
});

test("the packet filter, of an internal network and a published port; the same networks produce the same text", (t) => {
  const udp = PortConfig.patch(hostPort, { protocol: PortConfig_Protocol.UDP, publishedPort: 53, targetPort: 5353 });
  const plans = [
    planOf(
      "t1",
      [
        [back, "10.0.2.5/24"],
        [front, "10.0.1.5/24", "fd00:1::5/64"],
      ],
      [hostPort, udp],
    ),
  ];
  const text = rulesetOf(plans, "inet x", "mst", "vxm0");
  t.is(
    text,
    `table inet x {}
delete table inet x
table inet x {
  set within4 { type ipv4_addr . ipv4_addr; flags interval; elements = { 10.0.1.0/24 . 10.0.1.0/24, 10.0.2.0/24 . 10.0.2.0/24 }; }
  set tasks4 { type ipv4_addr; flags interval; elements = { 10.0.1.0/24, 10.0.2.0/24 }; }
  set internal4 { type ipv4_addr; flags interval; elements = { 10.0.2.0/24 }; }
  set within6 { type ipv6_addr . ipv6_addr; flags interval; elements = { fd00:1::/64 . fd00:1::/64 }; }
  set tasks6 { type ipv6_addr; flags interval; elements = { fd00:1::/64 }; }
  set internal6 { type ipv6_addr; flags interval; }
  chain spoken-for {
    type filter hook prerouting priority raw; policy accept;
    iifname "mst*" fib saddr . iif oif missing drop
  }
  chain between {
    type filter hook forward priority filter - 5; policy accept;
    iifname "mst*" oifname "mst*" ip saddr @tasks4 ip saddr . ip daddr != @within4 drop
    iifname "mst*" oifname "mst*" ip daddr @tasks4 ip saddr . ip daddr != @within4 drop
    ip saddr @internal4 ip saddr . ip daddr != @within4 drop
    ip daddr @internal4 ip saddr . ip daddr != @within4 drop
    iifname "mst*" oifname != { "mst*", "vxm0" } ip daddr @tasks4 drop
    iifname "mst*" oifname "mst*" ip6 saddr @tasks6 ip6 saddr . ip6 daddr != @within6 drop
    iifname "mst*" oifname "mst*" ip6 daddr @tasks6 ip6 saddr . ip6 daddr != @within6 drop
    ip6 saddr @internal6 ip6 saddr . ip6 daddr != @within6 drop
    ip6 daddr @internal6 ip6 saddr . ip6 daddr != @within6 drop
    iifname "mst*" oifname != { "mst*", "vxm0" } ip6 daddr @tasks6 drop
  }
  chain out {
    type nat hook postrouting priority srcnat; policy accept;
    oifname != { "lo", "mst*" } ip saddr @tasks4 ip daddr != @tasks4 masquerade
    oifname != { "lo", "mst*" } ip6 saddr @tasks6 ip6 daddr != @tasks6 masquerade
  }
  chain in {
    type nat hook prerouting priority -100; policy accept;
    ip daddr != { 127.0.0.0/8, 169.254.0.0/16 } fib daddr type local tcp dport 8080 dnat ip to 10.0.1.5:80
    ip daddr != { 127.0.0.0/8, 169.254.0.0/16 } fib daddr type local udp dport 53 dnat ip to 10.0.1.5:5353
    ip6 daddr != { ::1, fd6d:7374:6e61:6d65::/64 } fib daddr type local tcp dport 8080 dnat ip6 to [fd00:1::5]:80
    ip6 daddr != { ::1, fd6d:7374:6e61:6d65::/64 } fib daddr type local udp dport 53 dnat ip6 to [fd00:1::5]:5353
  }
  chain own {
    type nat hook output priority -100; policy accept;
    ip daddr != { 127.0.0.0/8, 169.254.0.0/16 } fib daddr type local tcp dport 8080 dnat ip to 10.0.1.5:80
    ip daddr != { 127.0.0.0/8, 169.254.0.0/16 } fib daddr type local udp dport 53 dnat ip to 10.0.1.5:5353
    ip6 daddr != { ::1, fd6d:7374:6e61:6d65::/64 } fib daddr type local tcp dport 8080 dnat ip6 to [fd00:1::5]:80
    ip6 daddr != { ::1, fd6d:7374:6e61:6d65::/64 } fib daddr type local udp dport 53 dnat ip6 to [fd00:1::5]:5353
  }
}
`,
  );
  const [a, b] = [planOf("t2", [[front, "10.0.1.6/24"]]), planOf("t3", [[back, "10.0.2.6/24"]])];
  t.is(rulesetOf([a, b], "inet x", "mst", "vxm0"), rulesetOf([b, a], "inet x", "mst", "vxm0"));
  t.is(rulesetOf([], "inet x", "mst", "vxm0"), "table inet x {}\ndelete table inet x\n");
});

/** Lives of an agent on one machine, whose disk and network outlive each. */
function machine(failure = 0) {
  const clock = new SimClock();
  const random = new SimRandom("task-networks");
  const network = new NetworkMachine(random, { failure });
  const records = new Map<string, Uint8Array>();
  const boot = () => {
    const own = clock.forProcess();
    const telemetry = createSimTelemetry({ who: "agent", random, trace: new SimTrace() });
    const disk = {
      load: async (name: string) => records.get(name) ?? null,
      save: async (name: string, data: Uint8Array) => void records.set(name, data),
      remove: async (name: string) => void records.delete(name),
      list: async (prefix: string) => [...records.keys()].filter((name) => name.startsWith(prefix)),
    };
    return { clock: own, networks: new TaskNetworks({ clock: own, disk, telemetry, tools: network.tools(own) }) };
  };
  const settled = async <Result>(outcome: Promise<Result>): Promise<Result> => {
    let isOver = false;
    const over = () => (isOver = true);
    outcome.then(over, over);
    await clock.run({ until: () => isOver, untilMs: clock.now() + 60_000 });
    return outcome;
  };
  return { clock, network, records, boot, settled };
}

test("NW1, NW2: a network exists until its task releases it, and a later life keeps or removes it", async (t) => {
  const { boot, clock, network: made, records, settled } = machine();
  const first = boot();
  const plans = ["t1", "t2", "t3"].map((id, at) => planOf(id, [[front, `10.0.1.${5 + at}/24`]]));
  await settled(Promise.all(plans.map((plan) => first.networks.make(plan, null))));
  t.is(made.links.size, 3);
  t.regex(made.rules, /10\.0\.1\.0\/24/);
  await settled(first.networks.remove("t1"));
  t.deepEqual([...made.namespaces.keys()], ["/run/netns/mst-0123abcd-t2", "/run/netns/mst-0123abcd-t3"]);
  first.clock.kill();
  // A task unknown to the next life; and one of another agent.
  made.addNamespace("/run/netns/mst-0123abcd-lost");
  made.addNamespace("/run/netns/mst-ffffffff-other");
  const second = boot();
  await settled(second.networks.load((id) => id === "t2"));
  t.deepEqual([...made.namespaces.keys()], ["/run/netns/mst-0123abcd-t2", "/run/netns/mst-ffffffff-other"]);
  t.is(second.networks.of("t3"), null);
  t.deepEqual(second.networks.of("t2")?.plan, plans[1]);
  await settled(second.networks.remove("t2"));
  await settled(second.networks.remove("t2"));
  t.is(made.links.size, 0);
  t.deepEqual([...records.keys()], []);
  t.is(made.rules, "table inet muster-tasks-0123abcd {}\ndelete table inet muster-tasks-0123abcd\n");
  await clock.run({ untilMs: clock.now() + 1_000 });
});

test("NW1: whenever the agent dies on the way, the next one completes the network or leaves nothing of it", async (t) => {
  const plan = planOf("t1", [
    [front, "10.0.1.5/24"],
    [back, "10.0.2.5/24"],
  ]);
  const left = new Set<string>();
  for (let afterMs = 1; afterMs < 60; afterMs += 1) {
    const { boot, clock, network: made, records, settled } = machine();
    const first = boot();
    void first.networks.make(plan, null).catch(() => {});
    await clock.run({ untilMs: clock.now() + afterMs });
    first.clock.kill();
    left.add(`${made.namespaces.size} ${made.links.size}`);
    const second = boot();
    await settled(second.networks.load(() => afterMs % 2 === 0));
    if (afterMs % 2 === 0) {
      await settled(second.networks.make(plan, null));
      t.is(made.links.size, 2);
      await settled(second.networks.remove("t1"));
    }
    t.is(made.namespaces.size + made.links.size, 0, `${afterMs} ms`);
    t.deepEqual([...records.keys()], []);
  }
  t.true(left.size > 2, `the agents died at different points: ${[...left].join(", ")}`);
});

test("a line that fails leaves a network that can be removed, and reports ip's error", async (t) => {
  const { boot, network: made, settled } = machine(1);
  const { networks } = boot();
  await t.throwsAsync(settled(networks.make(planOf("t1", [[front, "10.0.1.5/24"]]), null)), {
    message: /drawn to fail/,
  });
  t.not(networks.of("t1"), null);
  t.is(made.rules, "");
});
