/** What one part of the wanted picture comes to in the kernel. A transaction is the difference of two such outputs. */
import type { Evaluation } from "./evaluation.ts";

export interface Chain {
  /** Where packets enter it by themselves, as nft writes it; null: only by a jump. */
  readonly hook: string | null;
  readonly lines: readonly string[];
}

export interface Output {
  readonly chains: ReadonlyMap<string, Chain>;
  /** Elements of the dispatch maps and sets, by `MAP KEY`. */
  readonly elements: ReadonlyMap<string, DispatchElement>;
  /** What the endpoints in it refer to. */
  readonly policies: readonly string[];
  readonly profiles: readonly string[];
  /** By the key of each. */
  readonly evaluations: ReadonlyMap<string, Evaluation>;
  /** Sets that its rules name, known or not. */
  readonly sets: readonly string[];
  /** Why some rules cannot be as main wants them. */
  readonly problem: string | null;
}

export interface DispatchElement {
  readonly map: DispatchMap;
  /** As nft takes it. */
  readonly key: string;
  /** What becomes of a packet with it; null for a set's element. */
  readonly verdict: string | null;
}

/** The set of the interfaces that have a workload behind them. */
export const workloadInterfaces = "workload-interfaces";

/** Where packets of an interface find the host endpoint that stands for it. */
export const hostMaps = [
  "from-host",
  "to-host",
  "forward-from-host",
  "forward-to-host",
  "untracked-from-host",
  "untracked-to-host",
  "pre-dnat",
] as const;

export type HostMap = (typeof hostMaps)[number];

const byInterface = "map %s { type ifname : verdict; }";
const byAddress = (family: 4 | 6): string => `map %s { type ifname . ipv${family}_addr : verdict; }`;

/**
 * What nft has to look up: by the interface, and by it and an address of the workload behind it. An endpoint is elements of
 * these and nothing else, unless it has something that no other has: a packet finds its endpoint by one look, and a change
 * is a few elements, however many endpoints there are. Chains and sets are what nft reads before it changes anything.
 */
export const dispatchTables = {
  [workloadInterfaces]: "set %s { type ifname; }",
  "workload-sources-4": "set %s { type ifname . ipv4_addr; }",
  "workload-sources-6": "set %s { type ifname . ipv6_addr; }",
  "workload-source": byInterface,
  "from-workload": byInterface,
  "to-workload-4": byAddress(4),
  "to-workload-6": byAddress(6),
  "to-workload": byInterface,
  /** What conntrack knows already. */
  tracked: "map %s { type ct_state : verdict; }",
  "from-host": byInterface,
  "to-host": byInterface,
  "forward-from-host": byInterface,
  "forward-to-host": byInterface,
  "untracked-from-host": byInterface,
  "untracked-to-host": byInterface,
  "pre-dnat": byInterface,
} as const satisfies Readonly<Record<HostMap, string>> & Readonly<Record<string, string>>;

export type DispatchMap = keyof typeof dispatchTables;

/** Chains that drop, and that look at a source that is not simply one of the workload's addresses; part of the base. */
export const droppedChain = "dropped";
export const otherSourceChain = "workload-other-source";

export class OutputBuilder {
  readonly #chains = new Map<string, Chain>();
  readonly #elements = new Map<string, DispatchElement>();
  readonly #policies = new Set<string>();
  readonly #profiles = new Set<string>();
  readonly #evaluations = new Map<string, Evaluation>();
  readonly #sets = new Set<string>();
  #problem: string | null = null;

  chain(name: string, lines: readonly string[], hook: string | null = null): this {
    this.#chains.set(name, { hook, lines });
    return this;
  }

  element(map: DispatchMap, key: string, verdict: string | null): this {
    this.#elements.set(`${map} ${key}`, { map, key, verdict });
    return this;
  }

  usesPolicy(key: string): void {
    this.#policies.add(key);
  }

  usesProfile(name: string): void {
    this.#profiles.add(name);
  }

  usesEvaluation(key: string, evaluation: Evaluation): void {
    this.#evaluations.set(key, evaluation);
  }

  usesSet(id: string): void {
    this.#sets.add(id);
  }

  /** The first one counts. */
  problem(text: string | null): void {
    this.#problem ??= text;
  }

  build(): Output {
    return {
      chains: this.#chains,
      elements: this.#elements,
      policies: [...this.#policies],
      profiles: [...this.#profiles],
      evaluations: this.#evaluations,
      sets: [...this.#sets],
      problem: this.#problem,
    };
  }
}
