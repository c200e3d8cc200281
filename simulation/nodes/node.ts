/** One life of a simulated node's agent: the real agent's actors on simulated ports. */
import { startAgent, type Agent } from "../../actors/agent/agent.ts";
import type { AgentPorts, Credentials, Dialer, TaskDriver, TlsMaterial } from "../../actors/agent/ports.ts";
import { Host } from "../../runtime/host.ts";
import type { Probes } from "../../runtime/ports/probes.ts";
import { openNodeLink } from "../../runtime/calls/node-link.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import type { SimIdentity } from "../../runtime/sim/rpc.ts";
import { simPayloadBytesMax } from "../../runtime/sim/subjects.ts";
import type { SimPorts } from "../../runtime/sim/simulation.ts";
import type { NetworkMachine } from "./network-machine.ts";
import type { SimDrivers } from "./drivers.ts";
import type { AssignedVersions } from "../invariants/sessions.ts";
import { identityOf, simulatedAuthority } from "../managers/authority.ts";
import { natsManagerId } from "../managers/nats-nodes.ts";
import { agentDisk, type SimMachine } from "./machine.ts";
import type { Repeats } from "./repeats.ts";
import { traceTransitions } from "../transitions.ts";
import type { SimDataplanes } from "./policies.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import { nodeCsi, type SimStorage } from "./storage.ts";
import { taskKind } from "../workloads/services.ts";

/** S31: when a task starts, its volumes are mounted on its node. */
function mounting(
  driver: TaskDriver,
  node: string,
  { storage }: SimStorage,
  onWrong: (claim: string) => void,
): TaskDriver {
  return {
    ...driver,
    start: (task) => {
      for (const { path, source } of task.volumes ?? []) {
        const isMounted = [...storage.volumes.values()].some(
          ({ mounted }) => mounted.get(node)?.paths.has(path) === true,
        );
        if (!isMounted) onWrong(`S31: task ${task.id} starts on ${node} without ${source} at ${path}`);
      }
      return driver.start(task);
    },
  };
}

/** Probes of a node on which nothing listens. */
const noProbes: Probes = {
  http: async () => ({ kind: "failed", reason: "connection refused" }),
  tcp: async () => ({ kind: "failed", reason: "connection refused" }),
};

interface NodeOptions {
  /** Null: without storage, and no task mounts any. */
  readonly storage: SimStorage | null;
  /** Null: without network policy. */
  readonly dataplanes: SimDataplanes | null;
  readonly assigned: AssignedVersions;
  readonly repeats: Repeats;
  /** It calls managers over NATS instead of gRPC. */
  readonly usesNats: boolean;
  /** Its actors. */
  readonly onHost: (host: Host) => void;
  /** An invariant is violated. */
  readonly onWrong: (claim: string) => void;
  /** Null: without driver plugins. */
  readonly drivers: SimDrivers | null;
  readonly machine: SimMachine;
  readonly trace: SimTrace;
  /** Null: without task networks, so it gets no tasks that need one. */
  readonly network: NetworkMachine | null;
  /** Address for packets from other nodes to its tasks. */
  readonly address: string;
  /** The problem of a handshake, for either side; null if there is none, or if nobody listens there. */
  readonly handshake: (address: string, credentials: Credentials, material: TlsMaterial) => string | null;
  /** It could not join, for instance because the token was replaced: an operator must supply another one. */
  readonly onNotJoined: () => void;
  /** Address and token for joining while its disk has no certificate. */
  readonly join: { readonly address: string; readonly token: string };
}

/** A link over the simulated NATS, whose servers know the node by its certificate. */
async function openLink(
  { clock, nodeBus: bus, random }: SimPorts,
  trace: SimTrace,
  manager: string,
  identity: SimIdentity,
): Promise<RpcChannel> {
  const nodeId = identity?.nodeId ?? `joining-${newId(random)}`;
  bus.present(nodeId, identity);
  const managerId = natsManagerId(manager);
  const link = await openNodeLink({ clock, random, bus, nodeId, managerId, payloadBytesMax: simPayloadBytesMax });
  trace.mark("link.opened");
  link.onClosed(() => trace.mark("link.broken"));
  return link;
}

export function bootNode(
  ports: SimPorts,
  {
    address,
    assigned,
    dataplanes,
    drivers,
    handshake,
    join,
    machine,
    network,
    onHost,
    onNotJoined,
    onWrong,
    repeats,
    storage,
    trace,
    usesNats,
  }: NodeOptions,
): Agent {
  const { clock, random, rpc, telemetry } = ports;
  const host = new Host({ clock, telemetry, onCrash: (actorId, error) => ports.fail(actorId, error) });
  traceTransitions(host, ports.name, trace);
  onHost(host);
  const dialer: Dialer = {
    dial: async (manager, credentials, material) => {
      const identity = credentials === "node" ? identityOf(material.certificatePem, clock.now()) : null;
      const channel = await (usesNats ? openLink(ports, trace, manager, identity) : rpc.connect(manager, identity));
      // After connecting, as in TLS: an unreachable peer rejects nothing.
      const problem = handshake(manager, credentials, material);
      if (problem === null) return repeats.through(assigned.watching(channel, manager));
      channel.close();
      throw new RpcError(Status.UNAVAILABLE, problem);
    },
  };
  const agentPorts: AgentPorts = {
    clock,
    random: random.fork("agent"),
    telemetry,
    host,
    dialer,
    disk: agentDisk(ports.disk, clock, random.fork("disk")),
    certificates: simulatedAuthority(random.fork("authority")),
    probes: drivers?.probes(clock) ?? noProbes,
    facts: { architecture: "x86_64", os: "linux", nanoCpus: 4e9, memoryBytes: 8 * 2 ** 30, engineVersion: "sim" },
  };
  const agent = startAgent({
    ...agentPorts,
    join,
    hostname: ports.name,
    dataPathAddress: address,
    labels: {},
    drivers: [
      machine.driver(taskKind, clock),
      ...(storage === null ? [] : [mounting(machine.driver("exec", clock), ports.name, storage, onWrong)]),
    ],
    ...(storage === null ? {} : { csi: nodeCsi(ports, ports.name) }),
    ...(drivers === null ? {} : { plugins: drivers.plugins(clock) }),
    ...(dataplanes === null ? {} : { dataplane: dataplanes.boot(ports, host) }),
    ...(network === null ? {} : { networks: network.tools(clock), nameServers: network.nameServers(clock) }),
  });
  agent.onState(({ kind }) => {
    if (kind === "failed" && agent.nodeId() === null) onNotJoined();
  });
  return agent;
}
