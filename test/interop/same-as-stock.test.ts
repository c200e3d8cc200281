// Networks, virtual IPs, endpoints and load-balancer addresses as sent to a node: equal from our manager and from a stock
// dockerd given the same commands at the same time. `told` lists what the comparison omits.
import anyTest, { type ExecutionContext } from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { labMissing, startLab, type Machine } from "../fixtures/lab.ts";
import { startManager } from "../fixtures/muster.ts";
import { recordedNode, type Json, type RecordedNode } from "../fixtures/recorded-node.ts";
import { words } from "../fixtures/swarm.ts";
import { told, type Told } from "../fixtures/told.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing() ?? labMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

interface Cluster {
  readonly name: string;
  run(...args: readonly string[]): Promise<string>;
  readonly node: RecordedNode;
}

async function clusters(t: ExecutionContext): Promise<{ readonly ours: Cluster; readonly stock: Cluster }> {
  const lab = startLab(t, 1);
  const [machine] = lab.machines as readonly [Machine];
  const [manager, engine] = await Promise.all([startManager(t, { on: lab.hub }), startEngine(t, machine)]);
  await engine.docker("swarm", "init", "--advertise-addr", machine.address);
  await engine.docker("node", "update", "--availability", "drain", (await engine.swarm()).NodeID);
  const token = await engine.docker("swarm", "join-token", "-q", "worker");
  return {
    ours: {
      name: "our manager",
      run: manager.muster,
      node: await recordedNode(t, { machine, join: manager.address, token: await manager.muster("token", "worker") }),
    },
    stock: {
      name: "a stock manager",
      run: (...args) => engine.docker(...args),
      node: await recordedNode(t, { machine, join: `${machine.address}:2377`, token }),
    },
  };
}

interface Step {
  readonly name: string;
  readonly commands: readonly string[];
  /** Number of tasks that run after the commands. */
  readonly running: number;
}

const create = "service create --detach --no-resolve-image";
const update = "service update --detach --no-resolve-image";

const steps: readonly Step[] = [
  {
    name: "a service on an overlay network has a virtual IP",
    commands: ["network create --driver overlay back", `${create} --name web --network back --replicas 2 bb:1`],
    running: 2,
  },
  {
    name: "a service with DNS round robin has no virtual IP",
    commands: [`${create} --name rr --network back --endpoint-mode dnsrr bb:1`],
    running: 3,
  },
  {
    name: "every node answers on a published port",
    commands: [`${create} --name public --publish 8080:80 --publish published=8053,target=53,protocol=udp bb:1`],
    running: 4,
  },
  {
    name: "an automatically assigned port is in the dynamic range",
    commands: [`${create} --name dynamic --publish 81 --publish 82/udp --replicas 2 bb:1`],
    running: 6,
  },
  {
    name: "a host-mode port is left to its node",
    commands: [
      `${create} --name host --publish mode=host,target=80,published=8081 --network back bb:1`,
      `${create} --name bare --publish mode=host,target=80 bb:1`,
    ],
    running: 8,
  },
  {
    name: "two networks with their own aliases, options and subnet",
    commands: [
      "network create --driver overlay --attachable --internal --label a=b --opt encrypted front",
      "network create --driver overlay --subnet 10.77.0.0/16 --ip-range 10.77.5.0/24 --gateway 10.77.0.9 own",
      `${create} --name two --network name=front,alias=api,alias=api2 --network name=own,alias=db --publish 8082:82 bb:1`,
    ],
    running: 9,
  },
  {
    name: "a network of several subnets",
    commands: [
      "network create --driver overlay --subnet 10.78.0.0/24 --subnet 10.79.0.0/24 wide",
      `${create} --name many --network wide --replicas 2 bb:1`,
    ],
    running: 11,
  },
  {
    name: "a service on the host's own network",
    commands: [`${create} --name bound --network host bb:1`],
    running: 12,
  },
  {
    name: "a global service gets addresses like any other",
    commands: [`${create} --name each --mode global --network back --publish 8084:84 bb:1`],
    running: 13,
  },
  {
    name: "an update gives tasks new addresses and adds the new parts of the service's endpoint",
    commands: [
      `${update} --update-delay 0s --update-parallelism 0 --publish-add 8083:83 --network-add front --image bb:2 web`,
    ],
    running: 13,
  },
  {
    name: "an update removes what it drops and keeps the rest",
    commands: [
      `${update} --update-parallelism 0 --publish-rm 83 --network-rm back web`,
      `${update} --update-parallelism 0 --endpoint-mode vip rr`,
      `${update} --update-parallelism 0 --env-add A=1 dynamic`,
    ],
    running: 13,
  },
  {
    name: "removing the last task on a network removes the node's address there",
    commands: ["service rm many", "service rm two", "network rm wide", "network rm own"],
    running: 10,
  },
];

function runningCount({ node }: Cluster): number {
  return node.tasks().filter((task) => task["desiredState"] === "RUNNING").length;
}

/** The node's view once nothing has changed for a while. */
async function settled(cluster: Cluster, step: string, count: number): Promise<Told> {
  await until(`${step}: ${count} tasks that ${cluster.name} runs`, () => runningCount(cluster) === count || null);
  let last = "";
  return until("changes to settle", async () => {
    const before = last;
    last = JSON.stringify(told(cluster.node));
    await new Promise((resolve) => setTimeout(resolve, 250));
    return last === before && last === JSON.stringify(told(cluster.node)) && told(cluster.node);
  });
}

function keysOf(session: Json): unknown {
  const keys = (session["networkBootstrapKeys"] ?? []) as readonly {
    subsystem: string;
    key: string;
    lamportTime: number;
  }[];
  return {
    subsystems: keys
      .toSorted((a, b) => a.lamportTime - b.lamportTime)
      .map(({ subsystem }) => subsystem)
      .toSorted(),
    lengths: keys.map(({ key }) => Buffer.from(key, "base64").length),
    times: new Set(keys.map(({ lamportTime }) => lamportTime)).size,
  };
}

function managersOf(session: Json): unknown {
  const managers = (session["managers"] ?? []) as readonly { weight: number; peer: { addr: string } }[];
  return managers.map(({ weight, peer }) => ({ weight, isAddress: /^10\.231\.0\.\d+:\d+$/.test(peer.addr) }));
}

test("our manager and a stock one send a node the same networks, addresses and ports", async (t) => {
  t.timeout(patient(300_000));
  const { ours, stock } = await clusters(t);
  t.deepEqual(keysOf(ours.node.session()), keysOf(stock.node.session()));
  t.deepEqual(managersOf(ours.node.session()), managersOf(stock.node.session()));
  for (const { name, commands, running } of steps) {
    await Promise.all(
      [ours, stock].map(async (cluster) => {
        for (const line of commands) await cluster.run(...words(line));
      }),
    );
    const [we, they] = await Promise.all([settled(ours, name, running), settled(stock, name, running)]);
    t.deepEqual(we.attachments, they.attachments, `${name}: the node's addresses`);
    t.deepEqual(we.tasks, they.tasks, `${name}: the tasks`);
  }
});
