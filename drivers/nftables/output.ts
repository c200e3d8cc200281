/** What one part of the wanted picture comes to in the kernel. A transaction is the difference of two such outputs. */

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
  /** Sets that its rules name, known or not. */
  readonly sets: readonly string[];
  /** Why some rules cannot be as main wants them. */
  readonly problem: string | null;
}

export interface DispatchElement {
  readonly map: DispatchMap;
  readonly interfaceName: string;
  /** The chain that packets of the interface go to; null for a set's element. */
  readonly chain: string | null;
}

/** By name: what each interface's packets go through. A packet finds its endpoint by one look, however many there are. */
export const dispatchMaps = [
  "workload-source",
  "from-workload",
  "to-workload",
  "from-host",
  "to-host",
  "forward-from-host",
  "forward-to-host",
  "untracked-from-host",
  "untracked-to-host",
  "pre-dnat",
] as const;

/** The set of the interfaces that have a workload behind them. */
export const workloadInterfaces = "workload-interfaces";

export type DispatchMap = (typeof dispatchMaps)[number] | typeof workloadInterfaces;

export class OutputBuilder {
  readonly #chains = new Map<string, Chain>();
  readonly #elements = new Map<string, DispatchElement>();
  readonly #policies = new Set<string>();
  readonly #profiles = new Set<string>();
  readonly #sets = new Set<string>();
  #problem: string | null = null;

  chain(name: string, lines: readonly string[], hook: string | null = null): this {
    this.#chains.set(name, { hook, lines });
    return this;
  }

  dispatch(map: DispatchMap, interfaceName: string, chain: string | null): this {
    this.#elements.set(`${map} ${interfaceName}`, { map, interfaceName, chain });
    return this;
  }

  usesPolicy(key: string): void {
    this.#policies.add(key);
  }

  usesProfile(name: string): void {
    this.#profiles.add(name);
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
      sets: [...this.#sets],
      problem: this.#problem,
    };
  }
}
