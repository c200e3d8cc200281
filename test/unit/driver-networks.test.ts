// Networks created by drivers are removed by them, whatever dies on the way and however many attempts it takes.
import test from "ava";
import { DriverNetworks } from "../../actors/driver/network.ts";
import type { DriverDescription, DriverPluginActor } from "../../actors/driver/plugin.ts";
import { TaskNetworks } from "../../actors/agent/task-networks.ts";
import type { NetworkPlan } from "../../machines/driver/task-network/plan.ts";
import {
  CreateNetworkResponse,
  DriverCapabilities,
  NetworkIsolationSpec,
  NetworkIsolationSpec_NetworkIsolationMode as Isolation,
} from "../../proto/gen/nomad.ts";
import type { DriverClient } from "../../runtime/ports/plugins.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { NetworkMachine } from "../../simulation/nodes/network-machine.ts";

const plan: NetworkPlan = {
  taskId: "t1",
  links: [
    {
      network: "net",
      hostInterface: "mst1",
      taskInterface: "eth0",
      taskMac: "02:00:00:00:00:01",
      isInternal: false,
      addresses: [{ family: 4, address: "10.0.1.5", subnet: "10.0.1.0/24", gateway: "10.0.1.1" }],
    },
  ],
  ports: [],
};

const description = {
  capabilities: DriverCapabilities.create({ networkIsolationModes: [Isolation.GROUP], mustCreateNetwork: true }),
} as DriverDescription;

/** Lives of an agent with one slow driver; disk, network and the driver's networks outlive each. */
function machine() {
  const clock = new SimClock();
  const random = new SimRandom("driver-networks");
  const network = new NetworkMachine(random, { failure: 0 });
  const records = new Map<string, Uint8Array>();
  const made = new Set<string>();
  /** How many of the next removals of a network fail, and whether creating one is rejected. */
  const faults = { destroy: 0, create: false };
  const boot = () => {
    const own = clock.forProcess();
    const telemetry = createSimTelemetry({ who: "agent", random, trace: new SimTrace() });
    const disk = {
      load: async (name: string) => records.get(name) ?? null,
      save: async (name: string, data: Uint8Array) => void records.set(name, data),
      remove: async (name: string) => void records.delete(name),
      list: async (prefix: string) => [...records.keys()].filter((name) => name.startsWith(prefix)),
    };
    const wait = () => new Promise<void>((resolve) => void own.setTimeout(resolve, 5));
    const client = {
      createNetwork: async ({ allocId }) => {
        await wait();
        if (faults.create) throw new Error("no such image");
        made.add(allocId);
        network.addNamespace(`/driver/${allocId}`);
        await wait();
        const isolationSpec = NetworkIsolationSpec.create({ mode: Isolation.GROUP, path: `/driver/${allocId}` });
        return CreateNetworkResponse.create({ isolationSpec, created: true });
      },
      destroyNetwork: async ({ allocId }) => {
        await wait();
        if (faults.destroy-- > 0) throw new Error("the engine is gone");
        made.delete(allocId);
        network.removeNamespace(`/driver/${allocId}`);
      },
    } as Partial<DriverClient> as DriverClient;
    const networks = new TaskNetworks({ clock: own, disk, telemetry, tools: network.tools(own) });
    const plugin = { client } as DriverPluginActor;
    const ofDriver = new DriverNetworks({ plugin, networks, log: telemetry.log, clock: own });
    return { clock: own, networks, ofDriver };
  };
  const settled = async <Result>(outcome: Promise<Result>): Promise<Result> => {
    let isOver = false;
    const over = () => (isOver = true);
    outcome.then(over, over);
    await clock.run({ until: () => isOver, untilMs: clock.now() + 600_000 });
    return outcome;
  };
  return { clock, network, records, made, faults, boot, settled };
}

test("DW1: a driver that fails to remove a network is retried until it succeeds, and its task is not forgotten before", async (t) => {
  const { boot, clock, faults, made, network, records, settled } = machine();
  const { ofDriver } = boot();
  await settled(ofDriver.make(plan, "web", description, []));
  t.is(network.links.get("mst1"), "/driver/t1");
  faults.destroy = 3;
  const at = clock.now();
  await settled(ofDriver.remove("t1"));
  t.is(clock.now() - at >= 30_000, true);
  t.deepEqual([made.size, network.links.size, records.size], [0, 0, 0]);
});

test("DW1: whenever the agent dies on the way, the next one leaves nothing that a driver created", async (t) => {
  const left = new Set<string>();
  for (let afterMs = 1; afterMs < 80; afterMs += 2) {
    const { boot, clock, made, network, records, settled } = machine();
    const first = boot();
    void first.ofDriver.make(plan, "web", description, []).catch(() => {});
    await clock.run({ untilMs: clock.now() + afterMs });
    first.clock.kill();
    left.add(`${made.size} ${network.links.size}`);
    const second = boot();
    await settled(second.networks.load(() => false));
    await settled(second.ofDriver.remove("t1"));
    t.deepEqual([made.size, network.links.size, records.size], [0, 0, 0], `${afterMs} ms`);
  }
  t.true(left.size > 2, `the agents died at different points: ${[...left].join(", ")}`);
});

test("a driver that rejects a network has created none, and the task gets the reason at once", async (t) => {
  const { boot, faults, records, settled } = machine();
  faults.create = true;
  await t.throwsAsync(settled(boot().ofDriver.make(plan, "web", description, [])), { message: "no such image" });
  t.is(records.size, 0);
});
