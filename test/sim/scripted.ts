/** A small world without random faults, for one scenario: managers, a node, and the checks of the scenario. */
import {
  ControlService,
  CreateServiceRequest,
  GetServiceRequest,
  NodeStatus_State,
  UpdateServiceRequest,
  type ServiceSpec,
  type UpdateServiceResponse,
} from "../../proto/gen/messages.ts";
import { endSpan, startSpan } from "../../actors/tracing.ts";
import { commandSpan } from "../../runtime/telemetry/spans.ts";
import { traceparentOf } from "../../runtime/telemetry/tracing.ts";
import { knownLevel } from "../../proto/format-level.ts";
import type { RpcChannel } from "../../runtime/ports/rpc.ts";
import type { SimProcess } from "../../runtime/sim/simulation.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { noFaults } from "../../runtime/sim/network.ts";
import type { TaskHabits } from "../../simulation/nodes/machine.ts";
import { SimManagers, type SimManager } from "../../simulation/managers/managers.ts";
import { SimNodes, runningOn } from "../../simulation/nodes/nodes.ts";
import type { DriverFaults, SimDrivers } from "../../simulation/nodes/drivers.ts";
import { SimDataplanes } from "../../simulation/nodes/policies.ts";
import type { ExecutionContext } from "ava";
import { ObjectNames } from "../support/object-names.ts";
import { assertTrace, type TreeOptions } from "../support/span-tree.ts";
import { drawOptions } from "../../simulation/options.ts";
import { Scene } from "../../simulation/scene.ts";

/** Tasks that never fail or end by themselves. */
export const steadyTasks: TaskHabits = {
  refusal: 0,
  failure: 0,
  lifeMsMax: 0,
  prepareMsMax: 100,
  startMsMax: 300,
  stopMsMax: 300,
};
const callTimeoutMs = 30_000;

/** Maximum time that a scenario waits, in virtual milliseconds. */
const patienceMs = 60_000;
const node = "a1";

export const olderVersion = { isOlder: true, level: knownLevel - 1 };

interface CommandOptions {
  readonly traceparent: string;
  readonly timeoutMs: number;
}

export class ScriptedWorld {
  readonly scene: Scene;
  readonly managers: SimManagers;
  readonly #nodes: SimNodes;
  readonly #names = new ObjectNames();
  readonly #isOlder: boolean;

  constructor(options: {
    readonly seed: number;
    readonly managers: number;
    /** All managers begin as an older version, which knows a lower level of the log's format. */
    readonly older?: boolean;
    /** Default 1. */
    readonly agents?: number;
    /** Behaviour of tasks; by default drawn from the seed. */
    readonly tasks?: TaskHabits;
    /** Keeps the spans of all processes (default: no). */
    readonly keepSpans?: boolean;
    /** Driver plugins on each node, with these faults (default: none). */
    readonly drivers?: DriverFaults;
    /** Dataplane drivers on each node, without faults. */
    readonly dataplanes?: boolean;
    /** Maximum number of steps; by default that of a seed. */
    readonly steps?: number;
    readonly onReplica?: (replica: Replica, demand: (claim: string | null) => void) => void;
  }) {
    const { onReplica, seed } = options;
    this.scene = new Scene(
      {
        ...drawOptions(seed),
        managers: options.managers,
        agents: options.agents ?? 1,
        skewMsMax: 0,
        driftPpmMax: 0,
        network: noFaults(),
        driverOperations: options.drivers === undefined ? 0 : 1,
        ...(options.drivers === undefined ? {} : { drivers: options.drivers }),
        healthOperations: 0,
        jsonClients: 0,
        networkOperations: 0,
        contentionOperations: 0,
        policyOperations: 0,
        attackMs: 0,
        repeats: 0,
        natsNodes: 0,
        historyRecords: 0,
        volumeOperations: 0,
        ...(options.tasks === undefined ? {} : { tasks: options.tasks }),
      },
      { spans: options.keepSpans === true },
      options.steps,
    );
    this.#isOlder = options.older === true;
    this.managers = new SimManagers(this.scene, {
      csi: () => null,
      onReplica: (name, replica) => {
        if (options.keepSpans === true) this.#names.follow(replica);
        onReplica?.(replica, (claim) => this.scene.demand(name, claim));
      },
      onRetired: () => {},
    });
    this.#nodes = new SimNodes(this.scene, {
      managers: this.managers,
      storage: null,
      dataplanes: options.dataplanes === true ? this.#dataplanes() : null,
    });
  }

  #dataplanes(): SimDataplanes {
    const { options, simulation } = this.scene;
    const dataplanes = new SimDataplanes(simulation.trace, options.dataplanes, (claim) => this.scene.fail(claim));
    dataplanes.heal();
    return dataplanes;
  }

  /** The driver plugins of all nodes. */
  get drivers(): readonly SimDrivers[] {
    return this.#nodes.drivers;
  }

  /** Resolves once all managers serve, and all know that the node is READY. */
  async found(): Promise<void> {
    for (let number = 1; number <= this.scene.options.managers; number += 1) this.managers.add(`m${number}`);
    if (this.#isOlder) for (const each of this.managers.processes) this.managers.setVersion(each, olderVersion);
    for (const each of this.managers.processes) each.start();
    await this.until("a cluster", () => this.managers.areServing && this.managers.joinToken() !== "");
    for (let number = 1; number <= this.scene.options.agents; number += 1) this.#nodes.add(`a${number}`).start();
    await this.until("the nodes to be READY", () => this.managers.all.every((each) => this.isReadyAt(each)));
    await this.until("all nodes to be READY", () => this.areAllReady());
  }

  /** Throws if an invariant is violated, or on timeout. */
  async until(what: string, holds: () => boolean): Promise<void> {
    await this.scene.runUntil(holds, patienceMs);
    if (this.scene.failure !== null) throw new Error(this.scene.failure);
    if (!holds()) throw new Error(`timed out waiting for ${what}`);
  }

  async pass(ms: number): Promise<void> {
    await this.scene.runUntil(() => false, ms);
    if (this.scene.failure !== null) throw new Error(this.scene.failure);
  }

  /** A person's connection to that manager. */
  dial(manager = this.leader as SimManager): RpcChannel {
    const identity = { nodeId: "", role: "swarm-manager" as const, organization: this.managers.organization() };
    return this.scene.simulation.ports("person").rpc.dial(manager.address, identity);
  }

  /** The answer to a call, in virtual time. A refusal fails the scenario. */
  async answered<Answer>(what: string, call: Promise<Answer>): Promise<Answer> {
    const answers: Answer[] = [];
    void call.then(
      (answer) => answers.push(answer),
      (error: unknown) => this.scene.fail(String(error)),
    );
    await this.until(what, () => answers.length > 0);
    return answers[0] as Answer;
  }

  /** A command of a person at a manager, as one span, and what it causes as one trace. Returns the trace's id. */
  async command(
    words: string,
    call: (channel: RpcChannel, options: CommandOptions) => Promise<unknown>,
    manager = this.leader as SimManager,
  ): Promise<string> {
    const ports = this.scene.simulation.ports("person");
    const span = startSpan(ports, commandSpan(words), "");
    const channel = this.dial(manager);
    await this.answered(words, call(channel, { traceparent: traceparentOf(span), timeoutMs: callTimeoutMs }));
    endSpan(ports, span);
    return span.spanContext().traceId;
  }

  /** Asserts that a trace is exactly this tree (`test/support/span-tree.ts`). Spans must be kept. */
  assertTrace(t: ExecutionContext, traceId: string, expected: string, without: TreeOptions["without"] = []): void {
    const spans = this.scene.simulation.spans ?? [];
    assertTrace(t, { spans, traceId, names: (id) => this.#names.of(id), without }, expected);
  }

  /** Creates a service, at the leader. Returns its id. */
  async create(spec: ServiceSpec): Promise<string> {
    const request = CreateServiceRequest.create({ spec });
    const call = this.dial().unary(ControlService.methods.CreateService, request, { timeoutMs: callTimeoutMs });
    return (await this.answered("the service", call)).service?.id ?? "";
  }

  /** Updates a service to this spec, at the leader. */
  async update(serviceId: string, spec: ServiceSpec): Promise<void> {
    const channel = this.dial();
    const { GetService, UpdateService } = ControlService.methods;
    const update = async (): Promise<UpdateServiceResponse> => {
      const get = GetServiceRequest.create({ serviceId });
      const { service } = await channel.unary(GetService, get, { timeoutMs: callTimeoutMs });
      const serviceVersion = service?.meta?.version ?? null;
      const request = UpdateServiceRequest.create({ serviceId, serviceVersion, spec });
      return channel.unary(UpdateService, request, { timeoutMs: callTimeoutMs });
    };
    await this.answered("the update", update());
  }

  /** Cuts all messages between the two, in both directions. */
  cut(one: string, other: string): void {
    const { network } = this.scene.simulation;
    network.cut(one, other);
    network.cut(other, one);
  }

  heal(one: string, other: string): void {
    const { network } = this.scene.simulation;
    network.heal(one, other);
    network.heal(other, one);
  }

  /** The manager with the node's session, according to `seenBy`. */
  home(seenBy: SimManager): SimManager | undefined {
    const store = seenBy.running?.store;
    const managerId = store?.get("session", store.byName("node", node)?.id ?? "")?.managerId ?? "";
    return this.managers.all.find(({ process: each }) => store?.byName("node", each.name)?.id === managerId);
  }

  /** Whether the node's last assignments came from this manager. */
  isAssignedBy(manager: SimManager): boolean {
    return this.#nodes.all.some(({ assigned }) => assigned.from === manager.address);
  }

  isReadyAt(manager: SimManager): boolean {
    const found = manager.running?.store.byName("node", node);
    return found?.status?.state === NodeStatus_State.READY && this.home(manager) !== undefined;
  }

  /** Adds an agent, which joins by itself. */
  addAgent(name: string): void {
    this.#nodes.add(name).start();
  }

  /** The live actors of a manager or an agent, each with its active states; null while its process does not run. */
  actorsOf(name: string): ReadonlyMap<string, string> | null {
    const found = [...this.managers.all, ...this.#nodes.all].find(({ process: each }) => each.name === name);
    if (found?.process.isRunning !== true || found.host === null) return null;
    const { host } = found;
    const states = [...host.ids()].map((id): [string, string] => [id, host.look(id)?.states.join(" ") ?? ""]);
    return new Map(states);
  }

  /** Ids of the tasks that run on the agent's machine. */
  running(agent: string): readonly string[] {
    const found = this.#nodes.all.find(({ process: each }) => each.name === agent);
    return found === undefined ? [] : runningOn(found);
  }

  get agents(): readonly SimProcess[] {
    return this.#nodes.all.map(({ process: each }) => each);
  }

  /** Whether every agent's node is READY according to the leader. */
  areAllReady(): boolean {
    const store = this.leader?.running?.store;
    return this.agents.every(({ name }) => store?.byName("node", name)?.status?.state === NodeStatus_State.READY);
  }

  get leader(): SimManager | undefined {
    return this.managers.all.find(({ process: each, running }) => each.isRunning && running?.isLeading() === true);
  }
}
