/** The driver's access to the kernel, through `nft`: applies transactions, and lists its own table. */
import { Nft, type Outcome } from "../../linux/nft.ts";
import { tableName } from "./names.ts";

export interface Kernel {
  /** Applies the whole script or nothing. */
  apply(script: string): Promise<Outcome>;
  /** Our table's contents; null if they cannot be read, empty if there is no table. */
  contents(): Promise<Contents | null>;
}

/** Contents of our table, by name. */
export interface Contents {
  /** `hook`: as in `Chain` (output.ts), null: none; `rules`: the number of rules. */
  readonly chains: ReadonlyMap<string, { readonly hook: string | null; readonly rules: number }>;
  readonly sets: ReadonlyMap<string, "set" | "map">;
}

interface Listed {
  readonly chain?: {
    readonly name: string;
    readonly type?: string;
    readonly hook?: string;
    readonly prio?: number;
    readonly policy?: string;
  };
  readonly rule?: { readonly chain: string };
  readonly set?: { readonly name: string };
  readonly map?: { readonly name: string };
}

function contentsOf(listed: readonly Listed[]): Contents {
  const chains = new Map<string, { readonly hook: string | null; rules: number }>();
  const sets = new Map<string, "set" | "map">();
  for (const { chain, set, map } of listed) {
    if (set !== undefined) sets.set(set.name, "set");
    if (map !== undefined) sets.set(map.name, "map");
    if (chain === undefined) continue;
    const { name, type, hook, prio, policy } = chain;
    chains.set(name, {
      hook: hook === undefined ? null : `type ${type} hook ${hook} priority ${prio}; policy ${policy};`,
      rules: 0,
    });
  }
  for (const { rule } of listed) {
    const chain = rule === undefined ? undefined : chains.get(rule.chain);
    if (chain !== undefined) chain.rules += 1;
  }
  return { chains, sets };
}

export class NftKernel implements Kernel {
  readonly #nft: Nft;

  /** `command`: null for the system's. */
  constructor(command: string | null = null) {
    this.#nft = new Nft(command);
  }

  apply(script: string): Promise<Outcome> {
    return this.#nft.apply(script);
  }

  async contents(): Promise<Contents | null> {
    const listed = await this.#nft.list(tableName);
    if (listed.kind === "failed") return listed.reason.includes("No such file or directory") ? contentsOf([]) : null;
    try {
      return contentsOf((JSON.parse(listed.output) as { readonly nftables: readonly Listed[] }).nftables);
    } catch {
      return null;
    }
  }
}
