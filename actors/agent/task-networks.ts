/**
 * The networks of a node's tasks: creates each before its task is started, and removes it when the driver has released the
 * task. machines/driver/task-network/ decides what to create.
 *
 * NW1: a network is recorded on disk before anything of it is created, by a driver as well, so a later agent process knows of
 *      all of them.
 * NW2: a network that exists when the agent starts stays while its task runs; others are removed. Failed removals are retried
 *      until they succeed.
 * NW3: the packet filter contains the rules of all records; it is programmed before a task's network is reported.
 */
import { makeInTask, makeOnNode, settingsFor, unmake } from "../../machines/driver/task-network/commands.ts";
import { namespaceOf, namespacePrefix, type NetworkPlan } from "../../machines/driver/task-network/plan.ts";
import { rulesetOf, tableOf } from "../../machines/driver/task-network/rules.ts";
import { tunnelDevice } from "../../machines/networks/tunnel-lines.ts";
import { tunnelOverhead } from "../../machines/networks/tunnel-plan.ts";
import { interfacePrefix } from "../../machines/policy/facts.ts";
import { NetworkIsolationSpec } from "../../proto/gen/nomad.ts";
import type { Clock, Telemetry, TimerHandle } from "../../runtime/ports/index.ts";
import type { AgentDisk, NetworkTools, TaskNetwork } from "./ports.ts";
import type { Discovery } from "./discovery.ts";
import { sentence } from "../sentence.ts";

/** Prefix of the records of tasks' networks; the task's id follows. */
const networkRecords = "driver-network.";
/** Delay before a failed removal is retried, in milliseconds. */
export const retryMs = 10_000;
/** Placeholder for the path of an unknown namespace. */
const nowhere = "/";

interface TaskNetworksPorts {
  readonly clock: Clock;
  readonly disk: AgentDisk;
  readonly telemetry: Telemetry;
  readonly tools: NetworkTools;
  /** Absent: tasks use the node's own name servers. */
  readonly discovery?: Discovery | null;
}

export class TaskNetworks {
  readonly #ports: TaskNetworksPorts;
  readonly #networks = new Map<string, TaskNetwork>();
  /** Changes of the node's network run one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  /** The packet filter's last programmed rules; null: unknown. */
  #rules: string | null = null;
  /** By task. */
  readonly #retries = new Map<string, TimerHandle>();
  #isStopped = false;

  constructor(ports: TaskNetworksPorts) {
    this.#ports = ports;
  }

  /** Stops; existing networks stay. */
  stop(): void {
    this.#isStopped = true;
    for (const timer of this.#retries.values()) this.#ports.clock.clearTimeout(timer);
  }

  /** Null when networks can be created here. */
  get problem(): string | null {
    return this.#ports.tools.problem;
  }

  get discovery(): Discovery | null {
    return this.#ports.discovery ?? null;
  }

  /** The task's network, of this process or an earlier one. */
  of(taskId: string): TaskNetwork | null {
    return this.#networks.get(taskId) ?? null;
  }

  /** Path of a task's namespace. */
  pathOf({ ofDriver, plan }: TaskNetwork): string {
    const { tools } = this.#ports;
    if (ofDriver === "asked") return nowhere;
    return ofDriver === null ? tools.pathOf(namespaceOf(tools.tag, plan.taskId)) : ofDriver.path;
  }

  /** The same, as seen by the process `pid`, which will join it. */
  async pathFor(network: TaskNetwork, pid: number | null): Promise<string> {
    const path = this.pathOf(network);
    // A driver reports the path of its own namespace.
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
      // The task's removal releases a driver's network.
      if (network === null || (network.ofDriver === null && !isKept(taskId))) await this.remove(taskId);
    }
    if (tools.problem !== null) return;
    try {
      const prefix = namespacePrefix(tools.tag);
      const ours = (await tools.namespaces()).filter((name) => name.startsWith(prefix));
      const orphans = ours.filter((name) => !this.#networks.has(name.slice(prefix.length)));
      for (const name of orphans) telemetry.log.warn({ namespace: name }, "removing a namespace without a task");
      if (orphans.length > 0)
        await tools.ip(
          orphans.flatMap((name) => unmake([], name)),
          { goesOn: true },
        );
      // A node whose tasks never had a network is not changed.
      if (records.length > 0) await this.#inTurn(() => this.#filter());
      await this.#ports.discovery?.load([...this.#networks.values()]);
    } catch (error) {
      telemetry.log.error({ error: sentence(error) }, "cannot restore the networks of earlier tasks");
    }
  }

  /** To be called before the task's driver creates it. NW1 */
  async ask(plan: NetworkPlan): Promise<void> {
    const network: TaskNetwork = { plan, ofDriver: "asked", nameservers: [] };
    // A driver's report to an earlier process is still valid.
    if (this.#networks.has(plan.taskId)) return;
    this.#networks.set(plan.taskId, network);
    await this.#ports.disk.save(networkRecords + plan.taskId, textOf(network));
  }

  /** Creates the network, in the namespace of the task's driver or one of ours; rejects with a reason. NW1, NW3 */
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
      // An earlier process may have died in between; a driver then returns its network again.
      if (isLeft) await tools.ip(unmake(plan.links, namespace), { goesOn: true });
      await tools.set(settingsFor(plan));
      await tools.ip(makeOnNode(plan, namespace, tools.mtu - tunnelOverhead));
      await tools.ip(makeInTask(plan, this.#ports.discovery?.addresses), { inside: this.pathOf(network) });
      await this.#filter();
      this.#tellDiscovery();
      return network;
    });
  }

  /** Removes the network and its record. Never rejects: failed removals are retried. NW2 */
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
        telemetry.log.error({ error: sentence(error), task: taskId }, "cannot remove the remains of a task's network");
        this.#removeLater(taskId, network);
      }
    });
  }

  #removeLater(taskId: string, network: TaskNetwork | undefined): void {
    const { clock } = this.#ports;
    if (this.#isStopped || this.#retries.has(taskId)) return;
    const again = (): void => {
      this.#retries.delete(taskId);
      // Unless it was created again meanwhile.
      if (this.#networks.get(taskId) === network || !this.#networks.has(taskId)) void this.remove(taskId);
    };
    this.#retries.set(taskId, clock.setTimeout(again, retryMs));
  }

  #tellDiscovery(): void {
    this.#ports.discovery?.networksAre([...this.#networks.values()]);
  }

  /** Argument for `ip`: a name, or the path of a driver's namespace. */
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

/** Null for records that no agent has written. */
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
      /** Absent in old records. */
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
