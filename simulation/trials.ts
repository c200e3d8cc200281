/**
 * Single faults, one after the other, in a cluster at rest: without other faults, timeouts are exact.
 *
 * S131: the node of a single lost agent is DOWN within the time documented for the kind of loss.
 * S132: no fault of managers, NATS or the network makes a node DOWN whose agent runs.
 */
import { NodeStatus_State } from "../proto/gen/messages.ts";
import { linkSilentMsMax } from "../runtime/calls/link.ts";
import type { SimRandom } from "../runtime/sim/random.ts";
import type { SimProcess } from "../runtime/sim/simulation.ts";
import { silentMsMax } from "./invariants/nodes.ts";
import type { SimManager, SimManagers } from "./managers/managers.ts";
import type { SimNodes } from "./nodes/nodes.ts";
import type { Scene } from "./scene.ts";
import type { TrialName } from "./trial-names.ts";
import type { Workloads } from "./workloads/workloads.ts";

/** Rest before a fault, in virtual milliseconds: a manager that had troubles gives no verdict for a grace period. */
const quietMs = 20_000;
/** From a broken stream to DOWN, in milliseconds: the reconnect grace of 6 s, the verdict, a commit, and clock drift. */
const brokenMsMax = 8_000;
/** From the last heartbeat to DOWN, in milliseconds: the grace of 16.5 s, the verdict, a commit, and clock drift. */
const unheardMsMax = 20_000;
/** Longer than a node without a manager waits for DOWN (30 s), in milliseconds. */
const watchMs = 50_000;
/** Long enough to write some hundred records, and shorter than a node waits for its manager, in milliseconds. */
const behindMs = 14_000;
/** Longer than from the loss of a manager to DOWN for its nodes (4 s and 30 s), in milliseconds. */
const cutOffMsMin = 45_000;
const cutOffMsMax = 60_000;
/** Interval between checks, in milliseconds, and their maximum number. */
const lookMs = 250;
const looksMax = 400;
/** Length of the leader's pauses, in milliseconds (its lease lasts 3 s), and their number. */
const pauseMsMin = 3_000;
const pauseMsMax = 6_000;
const pausesMax = 3;

interface TrialParts {
  readonly scene: Scene;
  readonly managers: SimManagers;
  readonly nodes: SimNodes;
  readonly workloads: Workloads;
  /** The agent that some services depend on. */
  readonly spared: string;
}

interface Trial {
  readonly name: TrialName;
  /** Null if this cluster is too small, or no process is in the required place. */
  prepare(): (() => Promise<void>) | null;
}

interface Pair {
  readonly agent: SimProcess;
  readonly manager: SimManager;
}

export class Trials {
  readonly #parts: TrialParts;
  readonly #random: SimRandom;

  constructor(parts: TrialParts) {
    this.#parts = parts;
    this.#random = parts.scene.simulation.random.fork("trials");
  }

  /** Runs as many trials as the options say, starting with another one for each seed. `rest`: lets the cluster come to rest. */
  async run(rest: () => Promise<void>): Promise<void> {
    const { scene } = this.#parts;
    const trials = this.#inOrder();
    let left = scene.options.onlyTrials?.length ?? scene.options.trials;
    for (const trial of trials) {
      if (left === 0 || scene.isTailLost) return;
      if (trial.prepare() === null) continue;
      await scene.runUntil(() => false, quietMs);
      const work = scene.failure === null ? trial.prepare() : null;
      if (work === null) continue;
      left -= 1;
      scene.simulation.trace.mark(`trial.${trial.name}`);
      scene.simulation.trace.write("world", `trial ${trial.name}`);
      await work();
      if (scene.failure === null) await rest();
      if (scene.failure !== null) return;
    }
  }

  /** The trials to attempt. */
  #inOrder(): readonly Trial[] {
    const { historyRecords, onlyTrials, seed, trials } = this.#parts.scene.options;
    const all = this.#all();
    const short = this.#ofShortHistory();
    if (onlyTrials !== null)
      return onlyTrials.flatMap((wanted) => [...all, ...short].filter(({ name }) => name === wanted));
    // Few logs have such a short history, so each of them is used.
    if (historyRecords > 0) return [...short, ...all];
    const first = (seed * trials) % all.length;
    return [...all.slice(first), ...all.slice(0, first)];
  }

  #all(): readonly Trial[] {
    return [
      { name: "agent.killed", prepare: () => this.#agentKilled() },
      { name: "manager.unlinked", prepare: () => this.#managerUnlinked() },
      { name: "manager.back.alone", prepare: () => this.#managerBackAlone() },
      { name: "agent.rebooted", prepare: () => this.#agentRebooted() },
      { name: "agent.frozen", prepare: () => this.#agentFrozen() },
      { name: "managers.unlinked", prepare: () => this.#managersUnlinked() },
      { name: "manager.gone", prepare: () => this.#managerGone() },
      { name: "leader.paused", prepare: () => this.#leaderPaused() },
      { name: "manager.cut.off", prepare: () => this.#managerCutOff() },
      { name: "managers.unrouted", prepare: () => this.#managersUnrouted() },
    ];
  }

  #ofShortHistory(): readonly Trial[] {
    return [
      { name: "manager.left.behind", prepare: () => this.#managerLeftBehind() },
      { name: "snapshots.lost", prepare: () => this.#snapshotsLost() },
    ];
  }

  #agentKilled(): (() => Promise<void>) | null {
    const pair = this.#pick(this.#pairs());
    if (pair === null) return null;
    return async () => {
      this.#discard(pair.agent);
      const { nodes } = this.#parts;
      // NATS tells managers nothing of a broken connection.
      if (nodes.usesNats(pair.agent))
        await this.#expectDown(pair.agent, brokenMsMax + linkSilentMsMax, "its link broke");
      else await this.#expectDown(pair.agent, brokenMsMax, "its connection broke");
    };
  }

  #agentFrozen(): (() => Promise<void>) | null {
    const pair = this.#pick(this.#pairs());
    if (pair === null) return null;
    return async () => {
      this.#parts.nodes.losePower(pair.agent);
      pair.agent.freeze();
      await this.#expectDown(pair.agent, unheardMsMax, "it froze with its connection open");
    };
  }

  /** The agent returns at once, while its manager still has its old connections half open. */
  #agentRebooted(): (() => Promise<void>) | null {
    const pair = this.#pick(this.#pairs());
    if (pair === null) return null;
    return async () => {
      pair.agent.crash({ losePower: true, isSilent: true });
      this.#parts.nodes.losePower(pair.agent);
      await this.#pass(this.#random.between(100, 1_000));
      pair.agent.start();
    };
  }

  /** A manager fails together with an agent, and comes back alone. */
  #managerBackAlone(): (() => Promise<void>) | null {
    const pair = this.#pick(this.#pairs());
    if (pair === null) return null;
    return async () => {
      pair.manager.process.crash();
      this.#discard(pair.agent);
      await this.#pass(this.#random.between(100, 1_000));
      pair.manager.process.start();
      await this.#expectDown(
        pair.agent,
        silentMsMax,
        `it went with ${pair.manager.process.name}, which came back alone`,
      );
    };
  }

  /** A manager fails together with an agent, and stays away until the other managers have noticed. */
  #managerGone(): (() => Promise<void>) | null {
    const pair = this.#pick(this.#pairs());
    if (pair === null || this.#parts.managers.serving.length < 2) return null;
    return async () => {
      pair.manager.process.crash();
      this.#discard(pair.agent);
      await this.#expectDown(pair.agent, silentMsMax, `it went with ${pair.manager.process.name}`);
      pair.manager.process.start();
    };
  }

  /** A manager is declared dead while its agents stay with it. */
  #managerUnlinked(): (() => Promise<void>) | null {
    const pair = this.#pick(this.#pairs());
    if (pair === null || this.#parts.managers.serving.length < 2) return null;
    const { name } = pair.manager.process;
    return () => this.#isolate([[name, this.#nats]], this.#random.between(6_000, 12_000));
  }

  /** For so long that the nodes of a dead manager would be DOWN, while they reach the other managers. */
  #managerCutOff(): (() => Promise<void>) | null {
    const pair = this.#pick(this.#pairs());
    const { serving } = this.#parts.managers;
    if (pair === null || serving.length < 2) return null;
    const { name } = pair.manager.process;
    const others = serving.map(({ process: each }) => each.name).filter((other) => other !== name);
    // The other managers may be reachable or not.
    const rest = this.#random.chance(0.5) ? others : [];
    const links = [this.#nats, ...rest].map((other) => [name, other] as const);
    return () => this.#isolate(links, this.#random.between(cutOffMsMin, cutOffMsMax));
  }

  /** The leader hears nothing of a manager with nodes, or that manager nothing of the leader, while both reach the log. */
  #managersUnrouted(): (() => Promise<void>) | null {
    const { managers, scene } = this.#parts;
    const leader = managers.leader?.name;
    const pair = this.#pick(this.#pairs().filter(({ manager }) => manager.process.name !== leader));
    if (pair === null || leader === undefined) return null;
    const { nats } = scene.simulation;
    const { name } = pair.manager.process;
    const [from, to] = this.#random.chance(0.7) ? [name, leader] : [leader, name];
    return async () => {
      nats.cutRoute(from, to);
      await this.#expectNobodyDown(this.#random.between(cutOffMsMin, cutOffMsMax));
      nats.healRoute(from, to);
      await this.#expectNobodyDown(watchMs);
    };
  }

  /** A switch fails: all managers are cut off from NATS and from all agents. */
  #managersUnlinked(): (() => Promise<void>) | null {
    if (this.#pairs().length === 0) return null;
    const { managers, nodes } = this.#parts;
    const agents = nodes.processes.filter(({ isRunning }) => isRunning);
    const links = managers.serving.flatMap(({ process: { name } }) =>
      [this.#nats, ...agents.map((agent) => agent.name)].map((other) => [name, other] as const),
    );
    return () => this.#isolate(links, this.#random.between(20_000, 30_000));
  }

  /** Repeated pauses longer than the lease, during writes: the leader then has a write in progress when it resumes. */
  #leaderPaused(): (() => Promise<void>) | null {
    const { managers, workloads } = this.#parts;
    if (managers.serving.length < 2) return null;
    return async () => {
      const writer = workloads.write(pausesMax * pauseMsMax);
      for (let pause = 0; pause < pausesMax; pause += 1) {
        const leader = managers.serving.find(({ process: each, running }) => !each.isPaused && running?.isLeading());
        leader?.process.pause(this.#random.between(pauseMsMin, pauseMsMax));
        await this.#pass(pauseMsMax);
      }
      for (let looks = 0; !writer.isDone && looks < looksMax; looks += 1) await this.#pass(lookMs);
    };
  }

  /** Cut off from NATS until the log drops the records that it needs next, and declared dead in the meantime. */
  #managerLeftBehind(): (() => Promise<void>) | null {
    const { managers, scene, workloads } = this.#parts;
    const manager = this.#pick(managers.serving);
    if (manager === null || managers.serving.length < 2 || scene.options.historyRecords === 0) return null;
    return async () => {
      workloads.write(behindMs);
      await this.#isolate([[manager.process.name, this.#nats]], behindMs);
    };
  }

  /** All stored snapshots are lost, and a manager restarts: the log alone no longer leads to the cluster's state. */
  #snapshotsLost(): (() => Promise<void>) | null {
    const { managers, scene } = this.#parts;
    const { nats } = scene.simulation;
    const leader = managers.leader;
    const manager = this.#pick(managers.serving.filter(({ process: each }) => each !== leader));
    if (manager === null || leader === null || nats.first === 1) return null;
    return async () => {
      nats.blobs.clear();
      manager.process.restart();
      await this.#pass(lookMs);
    };
  }

  /** S132 */
  async #isolate(links: readonly (readonly [string, string])[], ms: number): Promise<void> {
    const { network } = this.#parts.scene.simulation;
    const both = links.flatMap(([one, other]) => [[one, other] as const, [other, one] as const]);
    for (const [from, to] of both) network.cut(from, to);
    await this.#expectNobodyDown(ms);
    for (const [from, to] of both) network.heal(from, to);
    await this.#expectNobodyDown(watchMs);
  }

  /** S132, for this duration. */
  async #expectNobodyDown(ms: number): Promise<void> {
    const { nodes, scene } = this.#parts;
    const running = nodes.processes.filter(({ isRunning }) => isRunning);
    const findDown = (): SimProcess | undefined => running.find((agent) => this.#isDown(agent));
    await scene.runUntil(() => findDown() !== undefined, ms);
    const down = findDown();
    if (down !== undefined) scene.fail(`S132: node ${down.name} is DOWN although its agent runs`);
  }

  /** S131 */
  async #expectDown(agent: SimProcess, ms: number, why: string): Promise<void> {
    const { scene } = this.#parts;
    const { clock } = scene.simulation;
    const since = clock.elapsed;
    while (!this.#isDown(agent) && clock.elapsed - since < ms && scene.failure === null) await this.#pass(lookMs);
    if (!this.#isDown(agent)) scene.fail(`S131: node ${agent.name} is not DOWN ${ms} ms after ${why}`);
  }

  /** According to any manager. */
  #isDown({ name }: SimProcess): boolean {
    return this.#parts.managers.all.some(
      ({ running }) => running?.store.byName("node", name)?.status?.state === NodeStatus_State.DOWN,
    );
  }

  /** Breaks the agent's machine for good, with its tasks. */
  #discard(agent: SimProcess): void {
    this.#parts.nodes.losePower(agent);
    agent.discard();
  }

  /** Agents that may fail, with the managers of their sessions. */
  #pairs(): readonly Pair[] {
    const { managers, nodes, spared } = this.#parts;
    const store = managers.serving.find(({ running }) => running !== null)?.running?.store;
    if (store === undefined) return [];
    return nodes.processes.flatMap((agent) => {
      const node = store.byName("node", agent.name);
      const isHere = agent.isRunning && agent.name !== spared && node?.status?.state === NodeStatus_State.READY;
      const home = node === undefined ? undefined : store.get("session", node.id)?.managerId;
      const manager = managers.serving.find(
        ({ process: each, running }) => running !== null && store.byName("node", each.name)?.id === home,
      );
      return isHere && manager !== undefined ? [{ agent, manager }] : [];
    });
  }

  #pick<Item>(items: readonly Item[]): Item | null {
    return items.length === 0 ? null : this.#random.pick(items);
  }

  async #pass(ms: number): Promise<void> {
    await this.#parts.scene.runUntil(() => false, ms);
  }

  get #nats(): string {
    return this.#parts.scene.simulation.nats.name;
  }
}
