/**
 * Names and virtual addresses of services for the tasks of a node: answers their questions, and keeps the kernel leading
 * connections to virtual addresses to tasks. What is answered, and what is programmed, is decided in machines/discovery/.
 *
 * DI1: it works from what a manager told last, so that neither ends when no manager is reached.
 * DI2: what it makes on the node is on the disk before, and is gone with the last network of a task, in this life or a later one.
 * DI3: a task that has just got its network is not told that a name is unknown before its network is known here.
 */
import { answerTo, type Asker } from "../../machines/discovery/answer.ts";
import { programmingMachine, type ProgrammingEvent } from "../../machines/networks/programming.ts";
import { nameServerMachine, type NameServerEvent } from "../../machines/discovery/name-server.ts";
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
import type { NetworksState, NodeNetworks } from "../../machines/networks/networks-state.ts";
import type { Host, HostedActor } from "../../runtime/host.ts";
import type { NameQuestion, NameReply, NameServers, OpenNameServer } from "../../runtime/name-server.ts";
import type { Clock, Random, Telemetry, TimerHandle } from "../../runtime/ports.ts";
import { hosted } from "../hosted.ts";
import { sentence } from "../sentence.ts";
import type { AgentDisk, NetworkTools } from "./agent-ports.ts";
import type { TaskNetwork } from "./task-networks.ts";

const record = "discovery";
const dnsPort = 53;
/** DI3: a manager tells of a task's network as soon as the task is given to the node; milliseconds. */
const tellMsMax = 5_000;
/** Of questions that wait for that. */
const waitingMax = 1_000;

const nameServer = hosted(nameServerMachine, ["open", "close"], ["backoff"]);
const programming = hosted(programmingMachine, ["program"], ["backoff"]);

export interface DiscoveryPorts {
  readonly clock: Clock;
  readonly disk: AgentDisk;
  readonly host: Host;
  readonly random: Random;
  readonly telemetry: Telemetry;
  readonly tools: NetworkTools;
  readonly nameServers: NameServers;
}

export interface DiscoveryOptions {
  /** The agent's, for the actors' ids. */
  readonly name: string;
  readonly networks: NodeNetworks;
  /** Empty while the node has none. */
  readonly nodeId: () => string;
}

/** A task that may ask. */
interface Own extends TaskNetwork {
  /** When it was first seen here. */
  readonly since: number;
}

export class Discovery {
  /** That tasks of this node ask, where it can listen there. */
  readonly addresses: NameServerAddresses;
  readonly #ports: DiscoveryPorts;
  readonly #options: DiscoveryOptions;
  readonly #server: HostedActor<typeof nameServerMachine>;
  readonly #programming: HostedActor<typeof programmingMachine>;
  readonly #random: Random;
  readonly #forget: () => void;
  /** By task, and by each of a task's addresses. */
  #own = new Map<string, Own>();
  #askers = new Map<string, Own>();
  /** By network; made when somebody asks. */
  #names = new Map<string, NetworkNames>();
  /** By family. A node without IPv6 has one alone. */
  readonly #open = new Map<4 | 6, OpenNameServer>();
  /** Of the server that is wanted now; what an earlier one says counts no more. */
  #life = 0;
  #programmed: VirtualPlan | null = null;
  /** What is made on the node is made one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  readonly #waiting = new Set<() => void>();
  /** When there last came a first network. */
  #since = 0;
  #isStopped = false;

  constructor(ports: DiscoveryPorts, options: DiscoveryOptions) {
    const { host, random, tools } = ports;
    this.#ports = ports;
    this.#options = options;
    this.#random = random.fork("order");
    this.addresses = nameServerAddresses(tools.tag);
    const draw = (boundMs: number): number => boundMs / 2 + random.below(Math.max(1, Math.floor(boundMs / 2)));
    this.#server = nameServer.start(host, `name-server/${options.name}`, undefined, {
      effects: { open: () => this.#openServer(), close: () => this.#closeServer() },
      draw,
    });
    this.#programming = programming.start(host, `programming/${options.name}`, undefined, {
      effects: { program: () => this.#program() },
      draw,
    });
    this.#forget = options.networks.onChange(() => this.#told());
  }

  /** Why tasks are not answered; empty: they are, or there are none. */
  get problem(): string {
    return this.#server.actor.getSnapshot().context.reason;
  }

  /** Takes away what an earlier life has left, if this one has no task with a network. DI2 */
  async load(networks: readonly TaskNetwork[]): Promise<void> {
    const isLeft = (await this.#ports.disk.load(record)) !== null;
    this.networksAre(networks);
    if (isLeft && networks.length === 0) this.#tellServer({ type: "names.left" });
  }

  /** Those of all tasks of this node. */
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

  /** What is made stays. */
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

  /** That a task can ask; null: there is none. Once that is known, in bounded time. */
  async addressFor({ links }: NetworkPlan): Promise<string | null> {
    if (!(await this.settled())) return null;
    const family = links.some(({ addresses }) => addresses.some((each) => each.family === 4)) ? 4 : 6;
    return this.#open.has(family) ? this.addresses[family] : null;
  }

  /**
   * Resolves once it is known whether tasks can ask here, and what they reach by virtual addresses is programmed; whether they
   * can. A manager that tells nothing of networks is waited for once, and not by each task.
   */
  async settled(): Promise<boolean> {
    const { clock } = this.#ports;
    const until = this.#since + tellMsMax;
    while (this.#isPending && clock.monotonic() < until && !this.#isStopped) await this.#news(until);
    return this.#isServing;
  }

  get #isServing(): boolean {
    return this.#server.actor.getSnapshot().hasTag("serving") && this.#options.networks.state !== null;
  }

  get #isPending(): boolean {
    const { context, value } = this.#programming.actor.getSnapshot();
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

  /** Resolves when something has changed, or it is time. */
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

  /** And whether it stays so once more is known. */
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

  /** Subnets tell networks apart; undefined: nobody has told of this one. */
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

  /** Most take the first. */
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
      .counter("muster_names_asked_total", "Questions of tasks for names, by how they were answered.")
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
          this.#ports.telemetry.log.debug({ reason: sentence(error) }, "tasks cannot ask for names over IPv6"),
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
    // What is left of it would be in the next one's way.
    this.#life += 1;
    this.#inTurn(() => this.#close());
    this.#ports.telemetry.log.warn({ address: this.addresses[4], reason }, "tasks cannot ask for names here");
    this.#tellServer({ type: "server.lost", reason });
  }

  #closeServer(): void {
    const life = (this.#life += 1);
    this.#inTurn(async () => {
      await this.#close();
      // Unless there is a task with a network again.
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
      telemetry.log.error({ error: sentence(error) }, "cannot take away what names of services have left");
      return false;
    }
  }

  #program(): void {
    this.#inTurn(async () => {
      const { networks, nodeId } = this.#options;
      const { tools } = this.#ports;
      // What an earlier life has programmed stays until something is known. DI1
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
    this.#server.actor.send(event);
    this.#wake();
  }

  #tellProgramming(event: ProgrammingEvent): void {
    if (this.#isStopped) return;
    this.#programming.actor.send(event);
    this.#wake();
  }

  #inTurn(act: () => Promise<void>): void {
    this.#turn = this.#turn.then(act);
  }
}
