/** The rendering of one part of the desired state. A transaction is the difference between two of them. */

/** To the endpoint, or from it. */
export type Direction = "in" | "out";

export interface Tier {
  /** Keys, in order; at least one. */
  readonly policies: readonly string[];
  /** Drops packets that they do not decide about. */
  readonly drops: boolean;
}

export interface Evaluation {
  readonly direction: Direction;
  readonly tiers: readonly Tier[];
  readonly profiles: readonly string[];
  /** Drops packets that nothing decides about. */
  readonly drops: boolean;
}
export interface Chain {
  /** The hook through which packets enter the chain, in nft's syntax; null: only by a jump. */
  readonly hook: string | null;
  readonly lines: readonly string[];
}

export interface Output {
  readonly chains: ReadonlyMap<string, Chain>;
  /** Elements of the dispatch maps and sets, by `MAP KEY`. */
  readonly elements: ReadonlyMap<string, DispatchElement>;
  /** References of its endpoints. */
  readonly policies: readonly string[];
  readonly profiles: readonly string[];
  /** By key. */
  readonly evaluations: ReadonlyMap<string, Evaluation>;
  /** Sets that its rules name, known or not. */
  readonly sets: readonly string[];
  /** Why some rules cannot be rendered as main wants them. */
  readonly problem: string | null;
}

export interface DispatchElement {
  readonly map: DispatchMap;
  /** In nft's syntax. */
  readonly key: string;
  /** The packet's verdict; null for an element of a set. */
  readonly verdict: string | null;
}

/** The set of workloads' interfaces. */
export const workloadInterfaces = "workload-interfaces";

/** Maps that lead an interface's packets to its host endpoint. */
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
 * The dispatch maps and sets: by interface, and by interface and a workload's address. An endpoint consists only of elements of
 * these, unless it needs rules of its own: a packet finds its endpoint with one lookup, and a change is a few elements, however
 * many endpoints there are. Chains and sets must be declared before nft changes anything.
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
  /** Connections that conntrack knows. */
  tracked: "map %s { type ct_state : verdict; }",
  "from-host": byInterface,
  "to-host": byInterface,
  "forward-from-host": byInterface,
  "forward-to-host": byInterface,
  "untracked-from-host": byInterface,
  "untracked-to-host": byInterface,
  "pre-dnat": byInterface,
} as const satisfies Readonly<Record<HostMap, string>> & Readonly<Record<string, string>>;

type DispatchMap = keyof typeof dispatchTables;

/** Chains that drop, and that check other sources than a workload's single addresses; part of the base. */
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

  /** Only the first one is kept. */
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
