/** Carries out the steps of a scenario: through managers, or on the machines and wires of the simulated world. */
import { NodeSpec_Availability } from "../../proto/gen/messages.ts";
import { RpcError } from "../../runtime/ports/rpc.ts";
import type { SimProcess } from "../../runtime/sim/simulation.ts";
import type { SimManager, SimManagers } from "../managers/managers.ts";
import type { Scene } from "../scene.ts";
import type { Cuts } from "./cuts.ts";
import type { RehearsedNode, RehearsedNodes } from "./nodes.ts";
import type { Operations } from "./operations.ts";
import type { Action, NodeChoice, NodePlan } from "./plan.ts";
import { listed } from "./listed.ts";
import { stepText } from "./step-text.ts";
import type { Registry } from "./task-machine.ts";

interface StepsOptions {
  readonly scene: Scene;
  readonly managers: SimManagers;
  readonly nodes: RehearsedNodes;
  readonly operations: Operations;
  readonly cuts: Cuts;
  readonly registry: Registry;
  /** Something that belongs into the list of events. */
  readonly onEvent: (text: string) => void;
  /** A new node was added; it has yet to join. */
  readonly onJoining: (node: RehearsedNode) => void;
}

type Of<Kind extends Action["kind"]> = Extract<Action, { readonly kind: Kind }>;

export class Steps {
  readonly #options: StepsOptions;
  readonly #random;
  /** Appends are delayed by this much, for each step in force. */
  readonly #delays: number[] = [];
  #fullLogs = 0;
  #natsOutages = 0;

  constructor(options: StepsOptions) {
    this.#options = options;
    this.#random = options.scene.simulation.random.fork("steps");
  }

  /** Begins a step. It may take a while, and its end may come later. */
  begin(action: Action): void {
    const chosen = "nodes" in action && "by" in action.nodes ? this.#choose(action.nodes) : [];
    this.#options.onEvent(
      stepText(
        action,
        chosen.map(({ plan }) => plan.name),
      ),
    );
    const { operations } = this.#options;
    switch (action.kind) {
      case "deploy":
        return this.#ask(() => operations.deploy(action.service));
      case "scale":
        return this.#ask(() => operations.scale(action.service, action.replicas));
      case "update":
        return this.#ask(() => operations.update(action.service));
      case "rollback":
        return this.#ask(() => operations.rollback(action.service));
      case "remove":
        return this.#ask(() => operations.remove(action.service));
      case "drain":
        return this.#setAvailability(chosen, NodeSpec_Availability.DRAIN, "drain");
      case "activate":
        return this.#setAvailability(chosen, NodeSpec_Availability.ACTIVE, "activate");
      case "join":
        return this.#join(action);
      case "lose-nodes":
        return this.#loseNodes(chosen, action.forMs);
      case "flap-nodes":
        return this.#flap(chosen, action);
      case "partition-nodes":
        return this.#partitionNodes(chosen, action.forMs);
      case "partition-managers":
        return this.#partitionManagers(action);
      case "kill-leader":
        return this.#killLeader(action.forMs);
      case "slow-log":
        return this.#slowLog(action);
      case "full-log":
        return this.#fullLog(action.forMs);
      case "lose-nats":
        return this.#loseNats(action.forMs);
      case "registry-outage":
        this.#options.registry.outages += 1;
        return this.#later(action.forMs, "the registry is back", () => (this.#options.registry.outages -= 1));
      case "step-clocks":
        return this.#stepClocks(action);
    }
  }

  /** A request that managers refuse for good is among the refusals. */
  #ask(work: () => Promise<void>): void {
    work().catch((error: unknown) => {
      if (!(error instanceof RpcError)) this.#options.scene.fail(`P2: a step threw: ${String(error)}`);
    });
  }

  /** Does `work` after `ms`, and reports it. */
  #later(ms: number, text: string, work: () => void): void {
    this.#options.scene.simulation.clock.schedule(
      () => {
        work();
        this.#options.onEvent(text);
      },
      ms,
      null,
    );
  }

  #choose(choice: NodeChoice): readonly RehearsedNode[] {
    const all = [...this.#options.nodes.all.values()];
    switch (choice.by) {
      case "name":
        return all.filter(({ plan }) => choice.names.includes(plan.name));
      case "label":
        return all.filter(({ plan }) => plan.labels[choice.label] === choice.value);
      case "number": {
        const rest = [...all];
        const chosen: RehearsedNode[] = [];
        while (chosen.length < choice.count && rest.length > 0)
          chosen.push(...rest.splice(this.#random.below(rest.length), 1));
        return chosen;
      }
    }
  }

  #setAvailability(nodes: readonly RehearsedNode[], availability: NodeSpec_Availability, verb: string): void {
    for (const { plan } of nodes)
      this.#ask(() => this.#options.operations.setAvailability(plan.name, availability, `${verb} node ${plan.name}`));
  }

  #join({ nodes, overMs }: Of<"join">): void {
    const { clock } = this.#options.scene.simulation;
    const add = (plan: NodePlan): void => this.#options.onJoining(this.#options.nodes.add(plan));
    for (const [at, plan] of nodes.entries())
      clock.schedule(() => add(plan), (overMs * at) / Math.max(1, nodes.length), null);
  }

  #loseNodes(nodes: readonly RehearsedNode[], forMs: number | null): void {
    const all = this.#options.nodes;
    for (const node of nodes) all.losePower(node);
    if (forMs === null) return;
    this.#later(forMs, `power is back: ${namesOf(nodes)}`, () => {
      for (const node of nodes) all.restorePower(node);
    });
  }

  #flap(nodes: readonly RehearsedNode[], { downMs, forMs, upMs }: Of<"flap-nodes">): void {
    const { clock } = this.#options.scene.simulation;
    const all = this.#options.nodes;
    const end = clock.elapsed + forMs;
    for (const node of nodes) {
      const fall = (): void => {
        if (clock.elapsed >= end) return;
        all.losePower(node);
        clock.schedule(
          () => {
            all.restorePower(node);
            clock.schedule(fall, upMs, null);
          },
          downMs,
          null,
        );
      };
      fall();
    }
  }

  #partitionNodes(nodes: readonly RehearsedNode[], forMs: number): void {
    const pairs = nodes.flatMap(({ process: node }) =>
      this.#options.managers.processes.map(({ name }): [string, string] => [node.name, name]),
    );
    this.#cut(pairs, forMs, `the network is whole again for ${namesOf(nodes)}`);
  }

  #partitionManagers({ forMs, managers: numbers }: Of<"partition-managers">): void {
    const all = this.#options.managers.processes.map(({ name }) => name);
    const cut = numbers.flatMap((number) => all[number - 1] ?? []);
    const rest = [...all.filter((name) => !cut.includes(name)), this.#options.scene.simulation.nats.name];
    const pairs = cut.flatMap((name) => rest.map((other): [string, string] => [name, other]));
    this.#cut(pairs, forMs, `the network is whole again for ${cut.join(", ")}`);
  }

  #cut(pairs: readonly [string, string][], forMs: number, text: string): void {
    const { cuts } = this.#options;
    for (const [one, other] of pairs) cuts.cut(one, other);
    this.#later(forMs, text, () => {
      for (const [one, other] of pairs) cuts.heal(one, other);
    });
  }

  #killLeader(forMs: number | null): void {
    const leader = this.#options.managers.all.find(isLeader);
    if (leader === undefined) return this.#options.onEvent("nobody leads: no manager was killed");
    const { process: killed } = leader;
    killed.crash();
    this.#options.onEvent(`${killed.name} was killed`);
    if (forMs !== null) this.#later(forMs, `${killed.name} is started again`, () => killed.start());
  }

  #slowLog({ delayMs, forMs }: Of<"slow-log">): void {
    const { nats } = this.#options.scene.simulation;
    const apply = (): void => void (nats.appendMs = Math.max(0, ...this.#delays));
    this.#delays.push(delayMs);
    apply();
    this.#later(forMs, "the log's disk is as fast as before", () => {
      this.#delays.splice(this.#delays.indexOf(delayMs), 1);
      apply();
    });
  }

  #fullLog(forMs: number): void {
    const { nats } = this.#options.scene.simulation;
    this.#fullLogs += 1;
    nats.isDiskFull = true;
    this.#later(forMs, "the log's disk has space again", () => {
      this.#fullLogs -= 1;
      nats.isDiskFull = this.#fullLogs > 0;
    });
  }

  #loseNats(forMs: number): void {
    const { nats } = this.#options.scene.simulation;
    this.#natsOutages += 1;
    nats.crash({ loseTail: false });
    this.#later(forMs, "NATS is back", () => {
      this.#natsOutages -= 1;
      if (this.#natsOutages === 0) nats.start();
    });
  }

  #stepClocks({ byMs, of }: Of<"step-clocks">): void {
    const processes: readonly (SimProcess | undefined)[] =
      "manager" in of
        ? [this.#options.managers.processes[of.manager - 1]]
        : this.#choose(of).map(({ process: each }) => each);
    for (const each of processes) each?.jumpClock(byMs);
  }
}

function isLeader({ process: each, running }: SimManager): boolean {
  return each.isRunning && running?.isLeading() === true;
}

function namesOf(nodes: readonly RehearsedNode[]): string {
  return listed(
    nodes.map(({ plan }) => plan.name),
    "no node",
  );
}
