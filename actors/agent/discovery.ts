/**
 * Names and virtual addresses of services for the tasks of a node: answers their queries, and has the kernel route connections
 * to virtual addresses to tasks. machines/discovery/ decides on answers and rules.
 *
 * DI1: it works from the last state that a manager sent, so both continue while no manager is reachable.
 * DI2: objects that it creates on the node are recorded on disk first, and are removed with the last network of a task, in this
 *      process or a later one.
 * DI3: a task that has just got its network gets no "unknown name" before its network is known here.
 */
import { answerTo, type Asker } from "../../machines/discovery/answer.ts";
import { programmingMachine, type ProgrammingEvent } from "../../machines/networks/programming.machine.ts";
import { nameServerMachine, type NameServerEvent } from "../../machines/discovery/name-server.machine.ts";
import { NetworkNames, taskTtlS } from "../../machines/discovery/names.ts";
import { nameServerAddresses, nameServerLines, type NameServerAddresses } from "../../machines/discovery/resolver.ts";
import {
  changedVirtual,
  virtualPlan,
  virtualTableOf,
  wholeVirtual,
  withoutVirtual,
  type VirtualPlan,
} from "../../machines/discovery/virtual-addresses.ts";
import type { NetworkPlan } from "../../machines/driver/task-network/plan.ts";
import type { NetworksState, NodeNetworks } from "../../machines/networks/state.ts";
import { drawUpperHalf } from "../../lib/backoff.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import type { NameQuestion, NameReply, NameServers, OpenNameServer } from "../../runtime/ports/name-server.ts";
import type { Clock, Random, Telemetry, TimerHandle } from "../../runtime/ports/index.ts";
import { sentence } from "../sentence.ts";
import type { AgentDisk, NetworkTools, TaskNetwork } from "./ports.ts";

const record = "discovery";
const dnsPort = 53;
/** DI3: timeout of waiting for a task's network, in milliseconds; a manager sends it as soon as the task is assigned. */
const tellMsMax = 5_000;
/** Maximum queries waiting for that. */
const waitingMax = 1_000;

interface DiscoveryPorts {
  readonly clock: Clock;
  readonly disk: AgentDisk;
  readonly host: Host;
  readonly random: Random;
  readonly telemetry: Telemetry;
  readonly tools: NetworkTools;
  readonly nameServers: NameServers;
}

interface DiscoveryOptions {
  /** The agent's name, for the actors' ids. */
  readonly name: string;
  readonly networks: NodeNetworks;
  /** Empty while the node has no id. */
  readonly nodeId: () => string;
}

/** A task that may query names. */
interface Own extends TaskNetwork {
  /** When it was first known here. */
  readonly since: number;
}

export class Discovery {
  /** Addresses that tasks of this node query, if it can listen there. */
  readonly addresses: NameServerAddresses;
  readonly #ports: DiscoveryPorts;
  readonly #options: DiscoveryOptions;
  readonly #server: HostedActor<typeof nameServerMachine>;
  readonly #programming: HostedActor<typeof programmingMachine>;
  readonly #random: Random;
  readonly #forget: () => void;
  /** By task, and by each of its addresses. */
  #own = new Map<string, Own>();
  #askers = new Map<string, Own>();
  /** By network; created on the first query. */
  #names = new Map<string, NetworkNames>();
  /** By family. A node without IPv6 has only one. */
  readonly #open = new Map<4 | 6, OpenNameServer>();
  /** Number of the current server; events of earlier ones are ignored. */
  #life = 0;
  #programmed: VirtualPlan | null = null;
  /** Changes to the node run one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  readonly #waiting = new Set<() => void>();
  /** When the first network was last added. */
  #since = 0;
  #isStopped = false;

  constructor(ports: DiscoveryPorts, options: DiscoveryOptions) {
    const { host, random, tools } = ports;
    this.#ports = ports;
    this.#options = options;
    this.#random = random.fork("order");
    this.addresses = nameServerAddresses(tools.tag);
    const draw = drawUpperHalf(random);
    this.#server = host.start(nameServerMachine, `name-server/${options.name}`, undefined, {
      effects: { open: () => this.#openServer(), close: () => this.#closeServer() },
      draw,
    });
    this.#programming = host.start(programmingMachine, `programming/${options.name}`, undefined, {
      effects: { program: () => this.#program() },
      draw,
    });
    this.#forget = options.networks.onChange(() => this.#told());
  }

  /** Why tasks get no answers; empty: they do, or there are none. */
  get problem(): string {
    return this.#server.snapshot.context.reason;
  }

  /** Removes remains of an earlier process if no task has a network. DI2 */
  async load(networks: readonly TaskNetwork[]): Promise<void> {
    const isLeft = (await this.#ports.disk.load(record)) !== null;
    this.networksAre(networks);
    if (isLeft && networks.length === 0) this.#tellServer({ type: "names.left" });
  }

  /** Sets the networks of all tasks of this node. */
  networksAre(networks: readonly TaskNetwork[]): void {
    if (this.#isStopped) return;
    const now = this.#ports.clock.monotonic();
    const before = this.#own;
    if (before.size === 0) this.#since = now;
    this.#own = new Map();
    this.#askers = new Map();
    for (const network of networks) {
      const { links, taskId } = network.plan;
      const own = { ...network, since: before.get(taskId)?.since ?? now };
      this.#own.set(taskId, own);
      for (const { address } of links.flatMap(({ addresses }) => addresses)) this.#askers.set(address, own);
    }
    const isWanted = this.#own.size > 0;
    this.#tellServer({ type: isWanted ? "names.wanted" : "names.unwanted" });
    if (isWanted) this.#tellProgramming({ type: "facts.changed" });
  }

  /** Stops; created objects stay. */
  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#forget();
    this.#life += 1;
    this.#server.stop();
    this.#programming.stop();
    for (const wake of this.#waiting) wake();
    await this.#turn;
    await this.#close();
  }

  /** Resolves with the address that a task can query, once known, in bounded time; null: none. */
  async addressFor({ links }: NetworkPlan): Promise<string | null> {
    if (!(await this.settled())) return null;
    const family = links.some(({ addresses }) => addresses.some((each) => each.family === 4)) ? 4 : 6;
    return this.#open.has(family) ? this.addresses[family] : null;
  }

  /**
   * Resolves once names can be queried here and virtual addresses are programmed, or with false if they cannot. A manager that
   * sends no networks is awaited once, not for each task.
   */
  async settled(): Promise<boolean> {
    const { clock } = this.#ports;
    const until = this.#since + tellMsMax;
    while (this.#isPending && clock.monotonic() < until && !this.#isStopped) await this.#news(until);
    return this.#isServing;
  }

  get #isServing(): boolean {
    return this.#server.snapshot.hasTag("serving") && this.#options.networks.state !== null;
  }

  get #isPending(): boolean {
    const { context, value } = this.#programming.snapshot;
    const isProgramming = value !== "current" && context.reason === "";
    return isProgramming || (!this.#isServing && this.problem === "");
  }

  #told(): void {
    this.#names = new Map();
    if (this.#own.size > 0) this.#tellProgramming({ type: "facts.changed" });
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
  }

  /** Resolves on a change, or at the deadline. */
  #news(until: number): Promise<void> {
    const { clock } = this.#ports;
    return new Promise((resolve) => {
      let timer: TimerHandle | null = null;
      const wake = (): void => {
        if (timer !== null) clock.clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve();
      };
      timer = clock.setTimeout(wake, Math.max(0, until - clock.monotonic()));
      this.#waiting.add(wake);
    });
  }

  /** DI3 */
  #answer(question: NameQuestion): NameReply | Promise<NameReply> {
    const own = this.#askers.get(question.from);
    if (own === undefined) return this.#counted({ kind: "refused" });
    const [reply, isCertain] = this.#reply(question, own);
    if (isCertain || this.#ports.clock.monotonic() >= own.since + tellMsMax) return this.#counted(reply);
    if (this.#waiting.size >= waitingMax) return this.#counted({ kind: "failed" });
    return this.#later(question, own.since + tellMsMax);
  }

  async #later(question: NameQuestion, until: number): Promise<NameReply> {
    await this.#news(until);
    return this.#isStopped ? { kind: "failed" } : this.#answer(question);
  }

  /** The reply, and whether it is final. */
  #reply(question: NameQuestion, { nameservers, plan }: Own): readonly [NameReply, boolean] {
    const { state } = this.#options.networks;
    const networks = plan.links.flatMap(({ addresses }) => this.#namesOf(addresses[0]?.subnet ?? "", state) ?? []);
    const asker: Asker = { networks, isInternal: plan.links.every(({ isInternal }) => isInternal) };
    const answer = answerTo(question, asker, taskTtlS);
    const isCertain = networks.length === plan.links.length;
    switch (answer.kind) {
      case "elsewhere":
        return [{ kind: "forward", servers: nameservers }, isCertain];
      case "unknown":
        return [answer, isCertain];
      case "addresses":
        return [{ ...answer, addresses: this.#shuffled(answer.addresses) }, true];
      default:
        return [answer, true];
    }
  }

  /** Networks are identified by their subnets; undefined: no manager has sent this one. */
  #namesOf(subnet: string, state: NetworksState | null): NetworkNames | undefined {
    if (state === null) return undefined;
    const known = this.#names.get(subnet);
    if (known !== undefined) return known;
    for (const network of state.networks.values()) {
      if (!network.subnets.some((each) => each.subnet === subnet)) continue;
      const names = new NetworkNames(network, state, this.#options.nodeId());
      this.#names.set(subnet, names);
      return names;
    }
    return undefined;
  }

  /** Random order, since most clients use the first address. */
  #shuffled(addresses: readonly string[]): readonly string[] {
    const order = [...addresses];
    for (let at = order.length - 1; at > 0; at -= 1) {
      const other = this.#random.below(at + 1);
      [order[at], order[other]] = [order[other] as string, order[at] as string];
    }
    return order;
  }

  #counted(reply: NameReply): NameReply {
    this.#ports.telemetry.metrics
      .counter("muster_names_asked_total", "Name queries of tasks, by answer.")
      .add(1, { answer: reply.kind });
    return reply;
  }

  #openServer(): void {
    const life = (this.#life += 1);
    this.#inTurn(async () => {
      if (life !== this.#life) return;
      try {
        await this.#ports.disk.save(record, new Uint8Array(0)); // DI2
        await this.#openAt(4, life);
        await this.#openAt(6, life).catch((error: unknown) =>
          this.#ports.telemetry.log.debug({ reason: sentence(error) }, "tasks cannot query names over IPv6"),
        );
        if (life !== this.#life) await this.#close();
        else this.#tellServer({ type: "server.opened" });
      } catch (error) {
        if (life === this.#life) this.#lost(sentence(error));
      }
    });
  }

  async #openAt(family: 4 | 6, life: number): Promise<void> {
    const address = this.addresses[family];
    await this.#ports.tools.ip([nameServerLines(address).add]);
    const open = await this.#ports.nameServers.open({
      address,
      port: dnsPort,
      answer: (question) => this.#answer(question),
      onLost: (reason) => {
        this.#open.delete(family);
        if (life === this.#life) this.#lost(reason);
      },
    });
    this.#open.set(family, open);
  }

  #lost(reason: string): void {
    // Its remains would conflict with the next one.
    this.#life += 1;
    this.#inTurn(() => this.#close());
    this.#ports.telemetry.log.warn({ address: this.addresses[4], reason }, "tasks cannot query names here");
    this.#tellServer({ type: "server.lost", reason });
  }

  #closeServer(): void {
    const life = (this.#life += 1);
    this.#inTurn(async () => {
      await this.#close();
      // Unless a task has a network again.
      if (life !== this.#life) return;
      const isGone = await this.#unmake();
      if (life === this.#life) this.#tellServer({ type: isGone ? "server.cleared" : "server.kept" });
    });
  }

  async #close(): Promise<void> {
    const open = [...this.#open.values()];
    this.#open.clear();
    await Promise.all(open.map((each) => each.close()));
  }

  async #unmake(): Promise<boolean> {
    const { disk, telemetry, tools } = this.#ports;
    try {
      this.#programmed = null;
      await tools.nft(withoutVirtual(virtualTableOf(tools.tag)));
      const lines = [this.addresses[4], this.addresses[6]].map((address) => nameServerLines(address).remove);
      await tools.ip(lines, { goesOn: true });
      await disk.remove(record);
      return true;
    } catch (error) {
      telemetry.log.error({ error: sentence(error) }, "cannot remove the remains of service discovery");
      return false;
    }
  }

  #program(): void {
    this.#inTurn(async () => {
      const { networks, nodeId } = this.#options;
      const { tools } = this.#ports;
      // Rules of an earlier process stay until a manager has sent the networks. DI1
      if (this.#isStopped) return;
      if (networks.state !== null && this.#own.size > 0) {
        const links = [...this.#own.values()].flatMap(({ plan }) => plan.links);
        const plan = virtualPlan(networks.state, nodeId(), links);
        const table = virtualTableOf(tools.tag);
        const before = this.#programmed;
        const script = before === null ? wholeVirtual(plan, table) : changedVirtual(before, plan, table);
        try {
          this.#programmed = null;
          if (script !== null) await tools.nft(script);
          this.#programmed = plan;
        } catch (error) {
          const reason = sentence(error);
          this.#ports.telemetry.log.error({ reason }, "cannot program the virtual addresses of services");
          this.#tellProgramming({ type: "kernel.refused", reason });
          return;
        }
      }
      this.#tellProgramming({ type: "kernel.programmed" });
    });
  }

  #tellServer(event: NameServerEvent): void {
    if (this.#isStopped) return;
    this.#server.send(event);
    this.#wake();
  }

  #tellProgramming(event: ProgrammingEvent): void {
    if (this.#isStopped) return;
    this.#programming.send(event);
    this.#wake();
  }

  #inTurn(act: () => Promise<void>): void {
    this.#turn = this.#turn.then(act);
  }
}
