/** Which services share a network: the basis of relations. */
import type { Network, Service } from "../../../proto/gen/messages.ts";
import { applicationName } from "../entities/names.ts";
import type { Store } from "../../../runtime/store/store.ts";

/** Specs refer to networks by id, or by name if the client did not resolve it. */
export function networkOf(store: Store, target: string): Network | undefined {
  return store.get("network", target) ?? store.byName("network", target);
}

export class Meetings {
  readonly #store: Store;
  /** Network id → service id → application. */
  readonly #on = new Map<string, Map<string, string>>();
  /** Service id → ids of its networks. */
  readonly #of = new Map<string, ReadonlySet<string>>();
  /** Service id → networks as named in its spec; and the reverse. */
  readonly #targets = new Map<string, ReadonlySet<string>>();
  readonly #byTarget = new Map<string, Set<string>>();

  constructor(store: Store) {
    this.#store = store;
  }

  applicationsOn(networkId: string): readonly string[] {
    return [...(this.#on.get(networkId)?.values() ?? [])];
  }

  /** Ids of the services whose spec names this network. */
  naming(target: string): Iterable<string> {
    return this.#byTarget.get(target) ?? [];
  }

  #remember(serviceId: string, targets: ReadonlySet<string>): void {
    for (const target of this.#targets.get(serviceId) ?? []) {
      const naming = this.#byTarget.get(target);
      if (naming?.delete(serviceId) === true && naming.size === 0) this.#byTarget.delete(target);
    }
    if (targets.size === 0) this.#targets.delete(serviceId);
    else this.#targets.set(serviceId, targets);
    for (const target of targets) {
      const naming = this.#byTarget.get(target) ?? new Set<string>();
      this.#byTarget.set(target, naming.add(serviceId));
    }
  }

  /** Returns the networks with changes. */
  put(serviceId: string, service: Service | undefined): readonly string[] {
    const spec = service?.spec ?? null;
    const attachments = [...(spec?.task?.networks ?? []), ...(spec?.networks ?? [])];
    const now = new Set(attachments.map(({ target }) => networkOf(this.#store, target)?.id ?? target));
    this.#remember(serviceId, new Set(attachments.map(({ target }) => target)));
    const before = this.#of.get(serviceId) ?? new Set<string>();
    const different = [...now].filter((id) => !before.has(id)).concat([...before].filter((id) => !now.has(id)));
    for (const id of different) {
      const there = this.#on.get(id) ?? new Map<string, string>();
      if (now.has(id)) this.#on.set(id, there.set(serviceId, applicationName(spec?.annotations?.name ?? serviceId)));
      else if (there.delete(serviceId) && there.size === 0) this.#on.delete(id);
    }
    if (now.size === 0) this.#of.delete(serviceId);
    else this.#of.set(serviceId, now);
    return different;
  }
}
