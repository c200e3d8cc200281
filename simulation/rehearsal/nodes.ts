/** The nodes of a rehearsal: a machine with one real agent each, which joins, fails and comes back. */
import { startAgent } from "../../actors/agent/agent.ts";
import type { Dialer } from "../../actors/agent/ports.ts";
import { Host } from "../../runtime/host.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimPorts, SimProcess } from "../../runtime/sim/simulation.ts";
import { identityOf, simulatedAuthority } from "../managers/authority.ts";
import type { SimManagers } from "../managers/managers.ts";
import { agentDisk } from "../nodes/machine.ts";
import { operatorMs, type Scene } from "../scene.ts";
import { traceTransitions } from "../transitions.ts";
import type { Behaviours } from "./behaviours.ts";
import { drawExponential } from "./draw.ts";
import type { NodeFailures, NodePlan } from "./plan.ts";
import { TaskMachine, type Registry } from "./task-machine.ts";

/** A kind of tasks, and the plugins with which nodes show that they run them. */
export interface RehearsedDriver {
  readonly kind: string;
  readonly advertised: readonly { readonly type: string; readonly name: string }[];
}

interface NodesOptions {
  readonly managers: SimManagers;
  readonly behaviours: Behaviours;
  readonly registry: Registry;
  readonly drivers: readonly RehearsedDriver[];
  /** The number of a service's running tasks has changed on some node. */
  readonly onRunning: (service: string, change: 1 | -1) => void;
}

export interface RehearsedNode {
  readonly plan: NodePlan;
  readonly process: SimProcess;
  readonly machine: TaskMachine;
  /** Number of reasons for which it has no power now. */
  outages: number;
}

export class RehearsedNodes {
  readonly all = new Map<string, RehearsedNode>();
  readonly #scene: Scene;
  readonly #options: NodesOptions;

  constructor(scene: Scene, options: NodesOptions) {
    this.#scene = scene;
    this.#options = options;
  }

  /** Adds a node and starts it. */
  add(plan: NodePlan): RehearsedNode {
    const { managers, onRunning, ...shared } = this.#options;
    const { simulation } = this.#scene;
    const { clock, random } = simulation;
    const machine = new TaskMachine({ ...shared, clock, random: random.fork(`machine.${plan.name}`), onRunning });
    const address = `192.0.2.${this.all.size + 1}`;
    const at = random.fork(`join.${plan.name}`).pick(managers.all).address;
    const process: SimProcess = simulation.process(
      // A node may be called like a manager, which is another process.
      simulation.has(plan.name) ? `node/${plan.name}` : plan.name,
      (ports) =>
        this.#boot(ports, plan, machine, {
          address,
          join: { address: at, token: managers.joinToken() },
          onNotJoined: () => {
            if (!ports.clock.alive) return;
            process.crash();
            clock.schedule(() => process.start(), operatorMs, null);
          },
        }),
      { onFail: (reason, error) => this.#scene.processFailed(plan.name, reason, error, () => process.start()) },
    );
    const node: RehearsedNode = { plan, process, machine, outages: 0 };
    this.all.set(plan.name, node);
    process.start();
    return node;
  }

  /** Its machine loses power. Outages of several causes may overlap. */
  losePower(node: RehearsedNode): void {
    node.outages += 1;
    if (node.outages > 1) return;
    node.process.crash({ losePower: true, isSilent: true });
    node.machine.losePower();
  }

  /** One cause of an outage is gone. */
  restorePower(node: RehearsedNode): void {
    node.outages -= 1;
    if (node.outages === 0) node.process.start();
  }

  /** Begins to draw failures of a node's machine. */
  startFailures(node: RehearsedNode): void {
    const { failures, name } = node.plan;
    if (failures === null) return;
    const random = this.#scene.simulation.random.fork(`failures.${name}`);
    this.#failLater(node, failures, random);
  }

  #failLater(node: RehearsedNode, failures: NodeFailures, random: SimRandom): void {
    const { clock } = this.#scene.simulation;
    clock.schedule(
      () => {
        this.losePower(node);
        clock.schedule(
          () => {
            this.restorePower(node);
            this.#failLater(node, failures, random);
          },
          drawExponential(random, failures.meanDownMs),
          null,
        );
      },
      drawExponential(random, failures.meanUpMs),
      null,
    );
  }

  #boot(
    ports: SimPorts,
    plan: NodePlan,
    machine: TaskMachine,
    life: {
      readonly address: string;
      readonly join: { readonly address: string; readonly token: string };
      readonly onNotJoined: () => void;
    },
  ): void {
    const { clock, random, rpc, telemetry } = ports;
    const { drivers, managers } = this.#options;
    const host = new Host({ clock, telemetry, onCrash: (actorId, error) => ports.fail(actorId, error) });
    traceTransitions(host, ports.name, this.#scene.simulation.trace);
    const dialer: Dialer = {
      dial: async (manager, credentials, material) => {
        const identity = credentials === "node" ? identityOf(material.certificatePem, clock.now()) : null;
        const channel = await rpc.connect(manager, identity);
        const problem = managers.handshake(ports.name, manager, credentials, material);
        if (problem === null) return channel;
        channel.close();
        throw new RpcError(Status.UNAVAILABLE, problem);
      },
    };
    const agent = startAgent({
      clock,
      random: random.fork("agent"),
      telemetry,
      host,
      dialer,
      disk: agentDisk(ports.disk, clock, random.fork("disk")),
      certificates: simulatedAuthority(random.fork("authority")),
      probes: machine.probes(clock),
      facts: {
        architecture: "x86_64",
        os: "linux",
        nanoCpus: Number(plan.nanoCpus),
        memoryBytes: Number(plan.memoryBytes),
        engineVersion: "sim",
      },
      join: life.join,
      hostname: plan.name,
      dataPathAddress: life.address,
      labels: plan.labels,
      drivers: drivers.map(({ advertised, kind }) => machine.driver(kind, clock, advertised)),
    });
    agent.onState(({ kind }) => {
      if (kind === "failed" && agent.nodeId() === null) life.onNotJoined();
    });
  }
}
