/**
 * The networks of a node's tasks: makes each before its task is started, and takes it away when the driver has let go of the
 * task. What to make is decided in machines/driver/task-network/.
 *
 * NW1: a network is on the disk before anything of it is made, by a driver as well, so a later life of the agent knows all that
 *      there may be.
 * NW2: one that is there when the agent starts stays as it is while its task runs; the rest is taken away.
 *      What cannot be taken away is tried again until it is gone.
 * NW3: the packet filter is what the records together ask for; it is there before a task is told that its network is.
 */
import { makeInTask, makeOnNode, settingsFor, unmake } from "../../machines/driver/task-network/commands.ts";
import { namespaceOf, namespacePrefix, type NetworkPlan } from "../../machines/driver/task-network/plan.ts";
import { rulesetOf, tableOf } from "../../machines/driver/task-network/rules.ts";
import { tunnelDevice } from "../../machines/networks/tunnel-lines.ts";
import { tunnelOverhead } from "../../machines/networks/tunnel-plan.ts";
import { interfacePrefix } from "../../machines/policy/facts.ts";
import { NetworkIsolationSpec } from "../../proto/gen/nomad.ts";
import type { Clock, Telemetry, TimerHandle } from "../../runtime/ports.ts";
import type { AgentDisk, NetworkTools } from "./agent-ports.ts";
import type { Discovery } from "./discovery.ts";
import { sentence } from "../sentence.ts";

/** Prefix of the records of tasks' networks; the task's id follows. */
const networkRecords = "driver-network.";
/** Before what could not be taken away is tried again, in milliseconds. */
export const retryMs = 10_000;
/** In place of the path of a namespace that nobody knows. */
const nowhere = "/";

/** A network that was made, or of which some part may have been. */
export interface TaskNetwork {
  readonly plan: NetworkPlan;
  /** What the task's driver made, as it said it; `asked`: it may have, and has not said it; null: the namespace is ours. */
  readonly ofDriver: NetworkIsolationSpec | "asked" | null;
  /** That are asked for the task about the world; empty: the node's. */
  readonly nameservers: readonly string[];
}

export interface TaskNetworksPorts {
  readonly clock: Clock;
  readonly disk: AgentDisk;
  readonly telemetry: Telemetry;
  readonly tools: NetworkTools;
  /** Absent: tasks ask the node's own servers for names. */
  readonly discovery?: Discovery | null;
}

export class TaskNetworks {
  readonly #ports: TaskNetworksPorts;
  readonly #networks = new Map<string, TaskNetwork>();
  /** What is changed of the node's network is changed one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  /** The packet filter's, as it was last programmed; null: not known. */
  #rules: string | null = null;
  /** By task. */
  readonly #retries = new Map<string, TimerHandle>();
  #isStopped = false;

  constructor(ports: TaskNetworksPorts) {
    this.#ports = ports;
  }

  /** What is there stays. */
  stop(): void {
    this.#isStopped = true;
    for (const timer of this.#retries.values()) this.#ports.clock.clearTimeout(timer);
  }

  /** Null: networks can be made here. */
  get problem(): string | null {
    return this.#ports.tools.problem;
  }

  get discovery(): Discovery | null {
    return this.#ports.discovery ?? null;
  }

  /** Of a task that has one, in this life or an earlier one. */
  of(taskId: string): TaskNetwork | null {
    return this.#networks.get(taskId) ?? null;
  }

  /** Where the kernel has a task's namespace. */
  pathOf({ ofDriver, plan }: TaskNetwork): string {
    const { tools } = this.#ports;
    if (ofDriver === "asked") return nowhere;
    return ofDriver === null ? tools.pathOf(namespaceOf(tools.tag, plan.taskId)) : ofDriver.path;
  }

  /** The same, as the process `pid`, which is to join it, finds it. */
  async pathFor(network: TaskNetwork, pid: number | null): Promise<string> {
    const path = this.pathOf(network);
    // What a driver has made is where it says.
    return pid === null || network.ofDriver !== null ? path : this.#ports.tools.pathFor(path, pid);
  }

  /** NW2. `isKept`: whether the task may still run. */
  async load(isKept: (taskId: string) => boolean): Promise<void> {
    const { disk, telemetry, tools } = this.#ports;
    const records = await disk.list(networkRecords);
    for (const name of records) {
      const network = parse(await disk.load(name));
      const taskId = name.slice(networkRecords.length);
      if (network !== null) this.#networks.set(taskId, network);
      // What a driver has made is its task's to give back.
      if (network === null || (network.ofDriver === null && !isKept(taskId))) await this.remove(taskId);
    }
    if (tools.problem !== null) return;
    try {
      const prefix = namespacePrefix(tools.tag);
      const ours = (await tools.namespaces()).filter((name) => name.startsWith(prefix));
      const orphans = ours.filter((name) => !this.#networks.has(name.slice(prefix.length)));
      for (const name of orphans) telemetry.log.warn({ namespace: name }, "a namespace of no task is removed");
      if (orphans.length > 0)
        await tools.ip(
          orphans.flatMap((name) => unmake([], name)),
          { goesOn: true },
        );
      // A node whose tasks never had a network is left as it is.
      if (records.length > 0) await this.#inTurn(() => this.#filter());
      await this.#ports.discovery?.load([...this.#networks.values()]);
    } catch (error) {
      telemetry.log.error({ error: sentence(error) }, "cannot look after the networks of earlier tasks");
    }
  }

  /** Before the task's driver is asked to make it. NW1 */
  async ask(plan: NetworkPlan): Promise<void> {
    const network: TaskNetwork = { plan, ofDriver: "asked", nameservers: [] };
    // What an earlier life was told of it still holds.
    if (this.#networks.has(plan.taskId)) return;
    this.#networks.set(plan.taskId, network);
    await this.#ports.disk.save(networkRecords + plan.taskId, textOf(network));
  }

  /** Makes the network, in the namespace that the task's driver made or one of ours; rejects with a reason. NW1, NW3 */
  make(
    plan: NetworkPlan,
    ofDriver: NetworkIsolationSpec | null,
    nameservers: readonly string[] = [],
  ): Promise<TaskNetwork> {
    const network: TaskNetwork = { plan, ofDriver, nameservers };
    return this.#inTurn(async () => {
      const { disk, tools } = this.#ports;
      if (tools.problem !== null) throw new Error(tools.problem);
      const isLeft = this.#networks.has(plan.taskId) || ofDriver !== null;
      this.#networks.set(plan.taskId, network);
      await disk.save(networkRecords + plan.taskId, textOf(network));
      const namespace = this.#namespaceOf(network);
      // An earlier life may have died in the middle of it; a driver gives what it made then once more.
      if (isLeft) await tools.ip(unmake(plan.links, namespace), { goesOn: true });
      await tools.set(settingsFor(plan));
      await tools.ip(makeOnNode(plan, namespace, tools.mtu - tunnelOverhead));
      await tools.ip(makeInTask(plan, this.#ports.discovery?.addresses), { inside: this.pathOf(network) });
      await this.#filter();
      this.#tellDiscovery();
      return network;
    });
  }

  /** Takes away what there is of it, and forgets it. Never rejects: what cannot be removed is tried again. NW2 */
  remove(taskId: string): Promise<void> {
    return this.#inTurn(async () => {
      const { disk, telemetry, tools } = this.#ports;
      const network = this.#networks.get(taskId);
      try {
        if (network !== undefined && tools.problem === null) {
          await tools.ip(unmake(network.plan.links, this.#namespaceOf(network)), { goesOn: true });
          this.#networks.delete(taskId);
          await this.#filter();
        }
        this.#networks.delete(taskId);
        this.#tellDiscovery();
        await disk.remove(networkRecords + taskId);
      } catch (error) {
        telemetry.log.error({ error: sentence(error), task: taskId }, "cannot remove what is left of a task's network");
        this.#removeLater(taskId, network);
      }
    });
  }

  #removeLater(taskId: string, network: TaskNetwork | undefined): void {
    const { clock } = this.#ports;
    if (this.#isStopped || this.#retries.has(taskId)) return;
    const again = (): void => {
      this.#retries.delete(taskId);
      // Unless it was made anew meanwhile.
      if (this.#networks.get(taskId) === network || !this.#networks.has(taskId)) void this.remove(taskId);
    };
    this.#retries.set(taskId, clock.setTimeout(again, retryMs));
  }

  #tellDiscovery(): void {
    this.#ports.discovery?.networksAre([...this.#networks.values()]);
  }

  /** As `ip` takes it: a name, or the path of another's. */
  #namespaceOf(network: TaskNetwork): string {
    return network.ofDriver === null ? namespaceOf(this.#ports.tools.tag, network.plan.taskId) : this.pathOf(network);
  }

  /** NW3 */
  async #filter(): Promise<void> {
    const { tools } = this.#ports;
    const plans = [...this.#networks.values()].filter(({ ofDriver }) => ofDriver !== "asked").map(({ plan }) => plan);
    const rules = rulesetOf(plans, tableOf(tools.tag), interfacePrefix, tunnelDevice(tools.tag));
    if (rules === this.#rules) return;
    this.#rules = null;
    await tools.nft(rules);
    this.#rules = rules;
  }

  #inTurn<Result>(act: () => Promise<Result>): Promise<Result> {
    const turn = this.#turn.then(act);
    this.#turn = turn.catch(() => {});
    return turn;
  }
}

function textOf({ nameservers, ofDriver, plan }: TaskNetwork): Uint8Array {
  const spec = ofDriver === null || ofDriver === "asked" ? ofDriver : [...NetworkIsolationSpec.encode(ofDriver)];
  return new TextEncoder().encode(JSON.stringify({ plan, ofDriver: spec, nameservers }));
}

/** Null for what this agent cannot have written. */
function parse(bytes: Uint8Array | null): TaskNetwork | null {
  if (bytes === null) return null;
  try {
    const {
      nameservers = [],
      ofDriver,
      plan,
    } = JSON.parse(new TextDecoder().decode(bytes)) as {
      readonly plan: NetworkPlan;
      readonly ofDriver: readonly number[] | "asked" | null;
      /** Absent in records of before there were any. */
      readonly nameservers?: readonly string[];
    };
    return {
      nameservers,
      plan,
      ofDriver:
        ofDriver === null || ofDriver === "asked" ? ofDriver : NetworkIsolationSpec.decode(Uint8Array.from(ofDriver)),
    };
  } catch {
    return null;
  }
}
