/**
 * Objects that wait for resources, by cause: a release wakes only those that it can help, and no more of them than there are
 * resources.
 */

/** The change that makes another attempt worthwhile, such as `addresses/<network id>`. */
export type Cause = string;

export const causes = {
  ports: "ports",
  subnets: "subnets",
  ingress: "ingress",
  /** The network with this id or name exists and is allocated. */
  network: (idOrName: string): Cause => `network/${idOrName}`,
  /** An address of the network is free. */
  addresses: (networkId: string): Cause => `addresses/${networkId}`,
  /** This specific address is free. */
  address: (networkId: string, address: string): Cause => `address/${networkId}/${address}`,
  /** The service has its endpoint, or was removed. */
  service: (id: string): Cause => `service/${id}`,
} as const;

export class Waiting {
  readonly #causes = new Map<string, Cause>();
  readonly #byCause = new Map<Cause, Set<string>>();

  get size(): number {
    return this.#causes.size;
  }

  /** An object that waits for the same cause keeps its place. */
  put(id: string, cause: Cause): void {
    if (this.#causes.get(id) === cause) return;
    this.delete(id);
    this.#causes.set(id, cause);
    const ids = this.#byCause.get(cause);
    if (ids === undefined) this.#byCause.set(cause, new Set([id]));
    else ids.add(id);
  }

  delete(id: string): boolean {
    const cause = this.#causes.get(id);
    if (cause === undefined) return false;
    const ids = this.#byCause.get(cause);
    ids?.delete(id);
    if (ids?.size === 0) this.#byCause.delete(cause);
    return this.#causes.delete(id);
  }

  countFor(cause: Cause): number {
    return this.#byCause.get(cause)?.size ?? 0;
  }

  /** The longest waiting, at most `most`; they keep waiting until they are deleted or put elsewhere. */
  first(cause: Cause, most = Number.POSITIVE_INFINITY): readonly string[] {
    const first: string[] = [];
    for (const id of this.#byCause.get(cause) ?? []) {
      if (first.length >= most) break;
      first.push(id);
    }
    return first;
  }
}

/** Resources that were freed or added since the last read. */
export class Opened {
  readonly #causes = new Set<Cause>();
  /** Addresses that were requested while in use; a release of any other address is not recorded one by one. */
  readonly #awaited = new Set<Cause>();

  get isEmpty(): boolean {
    return this.#causes.size === 0;
  }

  add(cause: Cause): void {
    this.#causes.add(cause);
  }

  await(cause: Cause): void {
    this.#awaited.add(cause);
  }

  addAddress(networkId: string, address: string): void {
    this.#causes.add(causes.addresses(networkId));
    if (this.#awaited.size === 0) return;
    const cause = causes.address(networkId, withoutLength(address));
    if (this.#awaited.delete(cause)) this.#causes.add(cause);
  }

  take(): readonly Cause[] {
    const opened = [...this.#causes];
    this.#causes.clear();
    return opened;
  }
}

/** The network whose addresses the cause is about; null for other causes. */
export function addressedNetwork(cause: Cause): string | null {
  const prefix = causes.addresses("");
  return cause.startsWith(prefix) ? cause.slice(prefix.length) : null;
}

export function withoutLength(address: string): string {
  const slash = address.indexOf("/");
  return slash < 0 ? address : address.slice(0, slash);
}

/** `reason` is empty while the awaited resource is only yet to be written. */
export interface Blocked {
  readonly kind: "blocked";
  readonly cause: Cause;
  readonly reason: string;
}

export function blocked(cause: Cause, reason: string): Blocked {
  return { kind: "blocked", cause, reason };
}
