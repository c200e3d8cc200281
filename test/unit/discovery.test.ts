// The agent's part in names and virtual addresses, on a simulated machine that outlives it: actors/agent/discovery.ts.
import test from "ava";
import { Discovery } from "../../actors/agent/discovery.ts";
import type { TaskNetwork } from "../../actors/agent/ports.ts";
import type { NetworksState } from "../../machines/networks/state.ts";
import { Host } from "../../runtime/host.ts";
import type { NameReply } from "../../runtime/ports/name-server.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { NetworkMachine } from "../../simulation/nodes/network-machine.ts";
import { networkScene, type SceneTask } from "../support/network-scene.ts";

const web = { name: "web", network: "back", virtualAddress: "10.0.1.2" };
const replica = (last: number, ready = true): SceneTask => ({
  id: `w${last}`,
  service: "web",
  slot: last,
  network: "back",
  address: `10.0.1.${last}`,
  ready,
});

function scene(...tasks: SceneTask[]): NetworksState {
  return networkScene({ networks: { back: "10.0.1.0/24" }, services: [web], tasks });
}

function taskNetwork(last: number, isInternal = false): TaskNetwork {
  const address = {
    family: 4,
    address: `10.0.1.${last}`,
    subnet: "10.0.1.0/24",
    gateway: "10.0.1.1",
  } as const;
  const link = { network: "back", hostInterface: `mst${last}`, taskInterface: "eth0", taskMac: "", isInternal };
  const plan = { taskId: `w${last}`, links: [{ ...link, addresses: [address] }], ports: [] };
  return { plan, ofDriver: null, nameservers: last === 9 ? ["9.9.9.9"] : [] };
}

function machine(failure = 0) {
  const clock = new SimClock();
  const random = new SimRandom("discovery");
  const network = new NetworkMachine(random, { failure });
  const records = new Map<string, Uint8Array>();
  const told = { state: null as NetworksState | null, listeners: new Set<(state: NetworksState) => void>() };
  const boot = () => {
    const own = clock.forProcess();
    const telemetry = createSimTelemetry({ who: "agent", random, trace: new SimTrace() });
    const host = new Host({
      clock: own,
      telemetry,
      onCrash: (id, error) => {
        throw new Error(`${id}: ${String(error)}`);
      },
    });
    const disk = {
      load: async (name: string) => records.get(name) ?? null,
      save: async (name: string, data: Uint8Array) => void records.set(name, data),
      remove: async (name: string) => void records.delete(name),
      list: async () => [...records.keys()],
    };
    const discovery = new Discovery(
      {
        clock: own,
        disk,
        host,
        random: random.fork("agent"),
        telemetry,
        tools: network.tools(own),
        nameServers: network.nameServers(own),
      },
      {
        name: "one",
        nodeId: () => "one",
        networks: {
          get state() {
            return told.state;
          },
          onChange: (listener) => {
            told.listeners.add(listener);
            return () => told.listeners.delete(listener);
          },
        },
      },
    );
    return { discovery, clock: own };
  };
  const pass = async (ms: number): Promise<void> => {
    await clock.run({ untilMs: clock.now() + ms });
  };
  return {
    boot,
    clock,
    network,
    records,
    pass,
    tell: (state: NetworksState) => {
      told.state = state;
      for (const listener of told.listeners) listener(state);
    },
    ask: (name: string, from = "10.0.1.3", type = "A") => network.names.ask(from, name, type),
  };
}

const at = (...addresses: string[]): NameReply => ({ kind: "addresses", ttlS: 60, addresses });

test("tasks get answers and routes while any exist, and changes apply at once", async (t) => {
  const { ask, boot, network, pass, records, tell } = machine();
  const { discovery } = boot();
  await discovery.load([]);
  await pass(1_000);
  t.deepEqual([ask("web"), network.names.addresses.size], [null, 0]);

  discovery.networksAre([taskNetwork(3)]);
  tell(scene(replica(3), replica(4)));
  await pass(1_000);
  t.deepEqual(ask("web"), at("10.0.1.2"));
  t.deepEqual(network.names.leadsTo("10.0.1.2"), ["10.0.1.3", "10.0.1.4"]);
  tell(scene(replica(3), replica(4, false)));
  t.deepEqual(ask("tasks.web"), { kind: "addresses", ttlS: 5, addresses: ["10.0.1.3"] });
  await pass(1_000);
  t.deepEqual(network.names.leadsTo("10.0.1.2"), ["10.0.1.3"]);

  discovery.networksAre([]);
  await pass(1_000);
  t.deepEqual([ask("web"), network.names.addresses.size, network.names.tables, records.size], [null, 0, [], 0]);
});

test("a caller that is not a task of this node is refused, and each task's other queries go to its own servers", async (t) => {
  const { ask, boot, pass, tell } = machine();
  const { discovery } = boot();
  discovery.networksAre([taskNetwork(3), taskNetwork(9), taskNetwork(7, true)]);
  tell(scene(replica(3)));
  await pass(6_000);
  t.deepEqual(ask("web", "10.0.1.4"), { kind: "refused" });
  t.deepEqual(ask("example.org"), { kind: "forward", servers: [] });
  t.deepEqual(ask("example.org", "10.0.1.9"), { kind: "forward", servers: ["9.9.9.9"] });
  t.deepEqual(ask("example.org", "10.0.1.7"), { kind: "unknown" });
  t.deepEqual(ask("web", "10.0.1.7"), at("10.0.1.2"));
});

test("DI3: a task that queries before its network is known waits for a bounded time", async (t) => {
  const { ask, boot, pass, tell } = machine();
  const { discovery } = boot();
  discovery.networksAre([taskNetwork(3)]);
  await pass(1_000);
  const early = ask("web");
  const vain = ask("example.org");
  t.true(early instanceof Promise && vain instanceof Promise);
  tell(scene(replica(3)));
  await pass(1);
  t.deepEqual(await early, at("10.0.1.2"));
  t.deepEqual(await vain, { kind: "forward", servers: [] });

  const other = machine();
  const { discovery: lonely } = other.boot();
  lonely.networksAre([taskNetwork(3)]);
  await other.pass(1_000);
  const late = other.ask("web");
  await other.pass(5_000);
  t.deepEqual(await late, { kind: "forward", servers: [] });
  t.deepEqual(other.ask("web"), { kind: "forward", servers: [] });
});

test("DI1, DI2: a later life takes over existing state or removes it", async (t) => {
  for (const isKept of [true, false]) {
    const { ask, boot, network, pass, records, tell } = machine();
    const first = boot();
    first.discovery.networksAre([taskNetwork(3)]);
    tell(scene(replica(3)));
    await pass(1_000);
    first.clock.kill();
    t.is(ask("web"), null);
    const second = boot();
    await second.discovery.load(isKept ? [taskNetwork(3)] : []);
    await pass(1_000);
    if (isKept) {
      t.deepEqual(ask("web"), at("10.0.1.2"));
      t.deepEqual(network.names.leadsTo("10.0.1.2"), ["10.0.1.3"]);
    } else t.deepEqual([network.names.addresses.size, network.names.tables, records.size], [0, [], 0]);
  }
});

test("failures are retried until they succeed, and reported", async (t) => {
  const { ask, boot, network, pass, tell } = machine(1);
  const { discovery } = boot();
  discovery.networksAre([taskNetwork(3)]);
  tell(scene(replica(3)));
  await pass(3_000);
  t.is(ask("web"), null);
  t.regex(discovery.problem, /drawn to fail/);
  t.false(await discovery.settled());
  network.heal();
  await pass(60_000);
  t.deepEqual(ask("web"), at("10.0.1.2"));
  t.is(discovery.problem, "");
  t.deepEqual(network.names.leadsTo("10.0.1.2"), ["10.0.1.3"]);
});

test("NV2: failed removals are retried, of this life and of an earlier one", async (t) => {
  for (const isOfEarlierLife of [false, true]) {
    const { boot, network, pass, records } = machine(1);
    const { clock, discovery } = boot();
    discovery.networksAre([taskNetwork(3)]);
    await pass(3_000);
    if (isOfEarlierLife) {
      clock.kill();
      await boot().discovery.load([]);
    } else discovery.networksAre([]);
    await pass(3_000);
    t.is(records.size, 1, "something may remain");
    network.heal();
    await pass(60_000);
    t.deepEqual([network.names.addresses.size, network.names.tables, records.size], [0, [], 0]);
  }
});

test("whenever tasks come and go and the agent dies, the next agent leaves the right state", async (t) => {
  for (let afterMs = 1; afterMs < 60; afterMs += 3) {
    const { boot, network, pass, records, tell } = machine();
    const first = boot();
    tell(scene(replica(3), replica(4)));
    for (const networks of [[taskNetwork(3)], [], [taskNetwork(3), taskNetwork(4)], []]) {
      first.discovery.networksAre(networks);
      await pass(afterMs % 7);
    }
    await pass(afterMs);
    first.clock.kill();
    const second = boot();
    await second.discovery.load([]);
    await pass(1_000);
    t.deepEqual([network.names.addresses.size, network.names.tables, records.size], [0, [], 0], `${afterMs} ms`);
  }
});

test("an agent that stops closes its socket and leaves the rules", async (t) => {
  const { ask, boot, network, pass, tell } = machine();
  const { discovery } = boot();
  discovery.networksAre([taskNetwork(3)]);
  tell(scene(replica(3)));
  await pass(1_000);
  const stopped = discovery.stop();
  await pass(1_000);
  await stopped;
  t.is(ask("web"), null);
  t.deepEqual(network.names.leadsTo("10.0.1.2"), ["10.0.1.3"]);
});
