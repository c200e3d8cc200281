// The tunnel between nodes: decisions from a node's state, and the kernel's state through deaths and failures.
import test from "ava";
import fc from "fast-check";
import { Tunnel } from "../../actors/agent/tunnel.ts";
import { FollowedNetworks, type NetworksState, type NodeNetworks } from "../../machines/networks/state.ts";
import { tunnelLines } from "../../machines/networks/tunnel-lines.ts";
import { canonical, peerOfHop, tunnelOf, type TunnelPlan } from "../../machines/networks/tunnel-plan.ts";
import { changedTunnel, wholeTunnel, withoutTunnel } from "../../machines/networks/tunnel-rules.ts";
import { AttachedNetwork, AttachedSubnet, NetworkNode, NetworksUpdate, NetworkTask } from "../../proto/gen/messages.ts";
import { Host } from "../../runtime/host.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { NetworkMachine } from "../../simulation/nodes/network-machine.ts";

const front = AttachedNetwork.create({
  id: "front",
  subnets: ["10.0.1.0/24", "fd00:1::/64"].map((subnet) => AttachedSubnet.create({ subnet })),
});

function nodeOf(id: string, address: string, hasTunnel = true): NetworkNode {
  return NetworkNode.create({ id, address, hasTunnel, port: 4789 });
}

/** A task with its node's id and its addresses. */
type Placed = readonly [id: string, nodeId: string, ...addresses: readonly string[]];

function told(nodes: readonly NetworkNode[], tasks: readonly Placed[]): NetworksState {
  const followed = new FollowedNetworks();
  followed.take(
    NetworksUpdate.create({
      fresh: true,
      inSync: true,
      version: 1,
      networks: [front],
      nodes: [...nodes],
      tasks: tasks.map(([taskId, nodeId, ...addresses]) =>
        NetworkTask.create({ key: `${taskId}/front`, networkId: "front", taskId, nodeId, addresses }),
      ),
    }),
  );
  return followed.state as NetworksState;
}

const one = nodeOf("n1", "192.0.2.1");
const two = nodeOf("n2", "192.0.2.2");
const own: Placed = ["t1", "n1", "10.0.1.2"];

function planOf(state: NetworksState): TunnelPlan {
  const decision = tunnelOf(state, "n1");
  if (decision.kind !== "plan") throw new Error(JSON.stringify(decision));
  return decision.plan;
}

test("TU1: there is a route to each remote task, via its node's address, and to no other", (t) => {
  const state = told(
    [
      one,
      two,
      nodeOf("n3", "192.0.2.3", false),
      nodeOf("n4", "192.0.2.1"),
      nodeOf("n5", "2001:db8::5"),
      nodeOf("n6", ""),
    ],
    [own, ["t2", "n2", "10.0.1.3", "fd00:1:0::3"], ["t3", "n3", "10.0.1.4"], ["t4", "n4", "10.0.1.5"]].concat([
      ["t5", "n5", "10.0.1.6"],
      ["t6", "n6", "10.0.1.7"],
    ]) as readonly Placed[],
  );
  const { device, peers, routes } = planOf(state);
  t.deepEqual(
    [...routes],
    [
      ["10.0.1.3", "192.0.2.2"],
      ["fd00:1::3", "192.0.2.2"],
    ],
  );
  t.deepEqual([...peers.keys()], ["192.0.2.2"]);
  t.deepEqual([device.local, device.port], ["192.0.2.1", 4789]);
  t.regex(device.mac, /^02(:[0-9a-f]{2}){5}$/);
  t.deepEqual(tunnelOf(told([one, two], [own]), "n1"), { kind: "none" });
  t.deepEqual(tunnelOf(state, "n9"), { kind: "none" });
});

test("a node with this machine's own address is reported, unless all of them have it", (t) => {
  const local = nodeOf("n1", "127.0.0.1");
  const elsewhere: readonly Placed[] = [own, ["t2", "n2", "10.0.1.3"]];
  const decision = tunnelOf(told([local, two], elsewhere), "n1");
  t.is(decision.kind, "impossible");
  t.regex(decision.kind === "impossible" ? decision.reason : "", /its address is 127\.0\.0\.1: set another address/);
  t.deepEqual(tunnelOf(told([local, nodeOf("n2", "127.0.0.1")], elsewhere), "n1"), { kind: "none" });
  t.is(tunnelOf(told([nodeOf("n1", ""), two], elsewhere), "n1").kind, "impossible");
});

test("TU2: both ends derive the same hardware address, and a peer is identified by its next hops", (t) => {
  const mine = planOf(told([one, two], [own, ["t2", "n2", "10.0.1.3"]]));
  const theirs = tunnelOf(told([one, two], [own, ["t2", "n2", "10.0.1.3"]]), "n2");
  if (theirs.kind !== "plan") return t.fail();
  t.is(mine.peers.get("192.0.2.2")?.mac, theirs.plan.device.mac);
  const six = planOf(
    told([nodeOf("n1", "2001:db8::1"), nodeOf("n2", "2001:DB8:0::2")], [own, ["t2", "n2", "10.0.1.3"]]),
  );
  t.deepEqual([...six.peers.keys()], ["2001:db8::2"]);
  for (const peer of [...mine.peers.values(), ...six.peers.values()])
    for (const hop of Object.values(peer.via)) t.deepEqual(peerOfHop(canonical(hop)), peer);
  return undefined;
});

test("a delta has only the lines that change, with routes after their peer's entries when added and before when removed", (t) => {
  const before = planOf(told([one, two], [own, ["t2", "n2", "10.0.1.3"]]));
  const after = planOf(told([one, two], [own, ["t2", "n2", "10.0.1.3"], ["t3", "n2", "10.0.1.4"]]));
  t.deepEqual(tunnelLines(before, after, "vxm0", false), {
    meet: [],
    route: ["route replace 10.0.1.4/32 via 192.0.2.2 dev vxm0 onlink"],
    unroute: [],
    part: [],
  });
  const three = planOf(told([one, nodeOf("n3", "192.0.2.3")], [own, ["t2", "n3", "10.0.1.3"]]));
  const mac = (plan: TunnelPlan): string => [...plan.peers.values()][0]?.mac ?? "";
  t.deepEqual(tunnelLines(before, three, "vxm0", false), {
    meet: [`fdb replace ${mac(three)} dev vxm0 self permanent dst 192.0.2.3`],
    route: [
      `neigh replace 192.0.2.3 lladdr ${mac(three)} dev vxm0 nud permanent`,
      `neigh replace fe80::c000:203 lladdr ${mac(three)} dev vxm0 nud permanent`,
      "route replace 10.0.1.3/32 via 192.0.2.3 dev vxm0 onlink",
    ],
    unroute: ["neigh del 192.0.2.2 dev vxm0", "neigh del fe80::c000:202 dev vxm0"],
    part: [`fdb del ${mac(before)} dev vxm0 self dst 192.0.2.2`],
  });
});

test("TU5, TU6: the packet filter, whole and as a delta", (t) => {
  const before = planOf(told([one, two], [own, ["t2", "n2", "10.0.1.3", "fd00:1::3"]]));
  t.is(
    wholeTunnel(before, "inet x", "vxm0", "mst"),
    `add table inet x
delete table inet x
add table inet x
add set inet x remote4 { typeof ip saddr . @th,336,32; }
add set inet x within4 { type ipv4_addr . ipv4_addr; flags interval; }
add set inet x remote6 { typeof ip saddr . @th,304,128; }
add set inet x within6 { type ipv6_addr . ipv6_addr; flags interval; }
add chain inet x listed
add chain inet x arriving { type filter hook input priority filter - 5; policy accept; }
add rule inet x arriving iifname "vxm0" drop
add rule inet x arriving udp dport 4789 @th,96,24 0 goto listed
add chain inet x across { type filter hook forward priority filter - 4; policy accept; }
add rule inet x across iifname "mst*" udp dport 4789 @th,96,24 0 drop
add rule inet x across iifname "vxm0" oifname != "mst*" drop
add rule inet x across oifname "vxm0" iifname != "mst*" drop
add rule inet x listed @th,224,16 0x0800 ip saddr . @th,336,32 @remote4 accept
add rule inet x across iifname "vxm0" ip saddr . ip daddr != @within4 drop
add rule inet x across oifname "vxm0" ip saddr . ip daddr != @within4 drop
add rule inet x listed @th,224,16 0x86dd ip saddr . @th,304,128 @remote6 accept
add rule inet x across iifname "vxm0" ip6 saddr . ip6 daddr != @within6 drop
add rule inet x across oifname "vxm0" ip6 saddr . ip6 daddr != @within6 drop
add rule inet x listed drop
add element inet x remote4 { 192.0.2.2 . 0xa000103 }
add element inet x within4 { 10.0.1.0/24 . 10.0.1.0/24 }
add element inet x remote6 { 192.0.2.2 . 0xfd000001000000000000000000000003 }
add element inet x within6 { fd00:1::/64 . fd00:1::/64 }
`,
  );
  const after = planOf(told([one, two], [own, ["t2", "n2", "10.0.1.3"], ["t3", "n2", "10.0.1.4"]]));
  t.is(
    changedTunnel(before, after, "inet x"),
    `add element inet x remote4 { 192.0.2.2 . 0xa000104 }
delete element inet x remote6 { 192.0.2.2 . 0xfd000001000000000000000000000003 }
`,
  );
  t.is(changedTunnel(after, after, "inet x"), null);
  t.is(withoutTunnel("inet x"), "add table inet x\ndelete table inet x\n");
});

/** Lives of an agent on one machine, whose network outlives each. */
function lives(failure = 0) {
  const clock = new SimClock();
  const random = new SimRandom("tunnel");
  const machine = new NetworkMachine(random, { failure });
  const boot = () => {
    const own = clock.forProcess();
    const telemetry = createSimTelemetry({ who: "agent", random, trace: new SimTrace() });
    const listeners = new Set<(state: NetworksState) => void>();
    const networks = {
      state: null as NetworksState | null,
      onChange(listener: (state: NetworksState) => void) {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    };
    const host = new Host({
      clock: own,
      telemetry,
      onCrash: (_, error) => {
        throw error;
      },
    });
    const options = { name: "n1", networks: networks as NodeNetworks, nodeId: () => "n1" };
    const tunnel = new Tunnel({ host, random, telemetry, tools: machine.tools(own) }, options);
    const tell = (state: NetworksState): void => {
      networks.state = state;
      for (const listener of listeners) listener(state);
    };
    return { clock: own, tell, tunnel };
  };
  const run = (ms = 300_000): Promise<unknown> => clock.run({ untilMs: clock.now() + ms });
  return { boot, machine, run };
}

const table = "inet muster-tunnel-0123abcd";

const sorted = (routes: ReadonlyMap<string, string>): unknown => [...routes].toSorted(([a], [b]) => (a < b ? -1 : 1));
const routed = (machine: NetworkMachine): unknown => sorted(machine.tunnel.reached());

test("TR1, TR2: routes to other nodes outlive the agent; a later life removes unwanted ones", async (t) => {
  const { boot, machine, run } = lives();
  const first = boot();
  first.tell(told([one, two], [own, ["t2", "n2", "10.0.1.3"], ["t3", "n2", "10.0.1.4", "fd00:1::4"]]));
  await run();
  t.deepEqual(routed(machine), [
    ["10.0.1.3", "192.0.2.2"],
    ["10.0.1.4", "192.0.2.2"],
    ["fd00:1::4", "192.0.2.2"],
  ]);
  first.clock.kill();
  const second = boot();
  await run();
  t.is(machine.tunnel.reached().size, 3, "nothing was received yet");
  second.tell(told([one, two, nodeOf("n3", "192.0.2.3")], [own, ["t3", "n2", "10.0.1.4"], ["t4", "n3", "10.0.1.5"]]));
  await run();
  t.deepEqual(routed(machine), [
    ["10.0.1.4", "192.0.2.2"],
    ["10.0.1.5", "192.0.2.3"],
  ]);
  second.tell(told([one, nodeOf("n3", "192.0.2.3")], [own, ["t4", "n3", "10.0.1.5"]]));
  await run();
  t.deepEqual([...machine.tunnel.peers], ["192.0.2.3"]);
  t.deepEqual([...machine.tunnel.elements(table, "remote4")], ["192.0.2.3 . 0xa000105"]);
  await second.tunnel.stop(false);
  t.is(machine.tunnel.reached().size, 1);
  const third = boot();
  third.tell(told([nodeOf("n1", "198.51.100.1"), nodeOf("n3", "192.0.2.3")], [own, ["t4", "n3", "10.0.1.5"]]));
  await run();
  t.is(machine.tunnel.find("vxm0123abcd")?.local, "198.51.100.1", "an endpoint at another address is another device");
  third.tell(told([one], []));
  await run();
  t.is(machine.tunnel.find("vxm0123abcd"), null);
  t.false(machine.tunnel.hasTable(table));
});

test("an agent that releases all of its tasks removes the tunnel", async (t) => {
  const { boot, machine, run } = lives();
  const { tell, tunnel } = boot();
  tell(told([one, two], [own, ["t2", "n2", "10.0.1.3"]]));
  await run();
  t.not(machine.tunnel.find("vxm0123abcd"), null);
  const over = tunnel.stop(true);
  await run();
  await over;
  t.is(machine.tunnel.find("vxm0123abcd"), null);
  t.false(machine.tunnel.hasTable(table));
});

const address = fc.constantFrom("10.0.1.3", "10.0.1.4", "10.0.1.5", "fd00:1::3");
const scene = fc.record({
  nodes: fc.uniqueArray(fc.constantFrom("192.0.2.2", "192.0.2.3", "192.0.2.4"), { minLength: 1 }),
  tasks: fc.uniqueArray(fc.tuple(address, fc.nat(2)), { selector: ([each]) => each, maxLength: 4 }),
});

test("TR2: whenever lines fail or the agent dies, the final state is the last one received", async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(scene, fc.nat(60), fc.boolean()), { minLength: 1, maxLength: 6 }),
      async (history) => {
        const { boot, machine, run } = lives(0.3);
        let life = boot();
        let state = told([one], []);
        for (const [{ nodes, tasks }, waitMs, dies] of history) {
          state = told(
            [one, ...nodes.map((each, at) => nodeOf(`m${at}`, each))],
            [own, ...tasks.map(([each, at], n): Placed => [`x${n}`, `m${at % nodes.length}`, each])],
          );
          life.tell(state);
          await run(waitMs);
          if (!dies) continue;
          life.clock.kill();
          life = boot();
          life.tell(state);
        }
        machine.heal();
        await run();
        const decision = tunnelOf(state, "n1");
        if (decision.kind === "none") {
          t.is(machine.tunnel.find("vxm0123abcd"), null);
          t.false(machine.tunnel.hasTable(table));
          return;
        }
        const { peers, routes } = planOf(state);
        t.deepEqual(routed(machine), sorted(routes));
        t.deepEqual([...machine.tunnel.peers].toSorted(), [...peers.keys()].toSorted());
        t.is(
          machine.tunnel.elements(table, "remote4").size + machine.tunnel.elements(table, "remote6").size,
          routes.size,
        );
      },
    ),
    { numRuns: 60 },
  );
});
