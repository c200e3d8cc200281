/**
 * The objects of the cluster that the page shows, from lists and from a watch that began before them.
 *
 * O1: an older version of an object never replaces a newer one, so lists and changes may come in any order.
 */
import {
  WatchActionKind,
  type Meta,
  type Network,
  type Node,
  type Service,
  type Task,
  type WatchMessage_Event,
} from "../../../proto/gen/cluster.ts";

interface Versioned {
  readonly id: string;
  readonly meta: Meta | null;
}

/** The objects of one kind. */
class Kind<Value extends Versioned> {
  readonly byId = new Map<string, Value>();

  /** Returns the object before; undefined: there was none. */
  take(value: Value): Value | undefined {
    const before = this.byId.get(value.id);
    // O1
    if (before === undefined || versionOf(before) <= versionOf(value)) this.byId.set(value.id, value);
    return before;
  }

  drop({ id }: Value): Value | undefined {
    const before = this.byId.get(id);
    this.byId.delete(id);
    return before;
  }
}

export function versionOf({ meta }: Pick<Versioned, "meta">): number {
  return meta?.version?.index ?? 0;
}

interface Listed {
  readonly nodes: readonly Node[];
  readonly services: readonly Service[];
  readonly tasks: readonly Task[];
  readonly networks: readonly Network[];
}

/** A change of an object that is shown, with its state before. */
export type Change = { readonly action: "create" | "update" | "remove" } & (
  | { readonly kind: "node"; readonly object: Node; readonly before: Node | undefined }
  | { readonly kind: "service"; readonly object: Service; readonly before: Service | undefined }
  | { readonly kind: "task"; readonly object: Task; readonly before: Task | undefined }
  | { readonly kind: "network"; readonly object: Network; readonly before: Network | undefined }
);

const actions: Readonly<Record<number, Change["action"]>> = {
  [WatchActionKind.WATCH_ACTION_CREATE]: "create",
  [WatchActionKind.WATCH_ACTION_UPDATE]: "update",
  [WatchActionKind.WATCH_ACTION_REMOVE]: "remove",
};

/** A change that names the object before itself. Null: the object is of a kind that the page does not show. */
export function changeOf({ action: code, object, oldObject }: WatchMessage_Event): Change | null {
  const action = actions[code];
  if (action === undefined || object === null) return null;
  const before = oldObject ?? null;
  const { network, node, service, task } = object;
  if (task !== null) return { action, kind: "task", object: task, before: before?.task ?? undefined };
  if (node !== null) return { action, kind: "node", object: node, before: before?.node ?? undefined };
  if (service !== null) return { action, kind: "service", object: service, before: before?.service ?? undefined };
  if (network !== null) return { action, kind: "network", object: network, before: before?.network ?? undefined };
  return null;
}

export class ClusterObjects {
  #nodes = new Kind<Node>();
  #services = new Kind<Service>();
  #tasks = new Kind<Task>();
  #networks = new Kind<Network>();
  /** Changes with every change. */
  version = 0;

  get nodes(): ReadonlyMap<string, Node> {
    return this.#nodes.byId;
  }
  get services(): ReadonlyMap<string, Service> {
    return this.#services.byId;
  }
  get tasks(): ReadonlyMap<string, Task> {
    return this.#tasks.byId;
  }
  get networks(): ReadonlyMap<string, Network> {
    return this.#networks.byId;
  }

  /** Replaces everything. */
  list({ nodes, services, tasks, networks }: Listed): void {
    this.#nodes = new Kind();
    this.#services = new Kind();
    this.#tasks = new Kind();
    this.#networks = new Kind();
    for (const node of nodes) this.#nodes.take(node);
    for (const service of services) this.#services.take(service);
    for (const task of tasks) this.#tasks.take(task);
    for (const network of networks) this.#networks.take(network);
    this.version += 1;
  }

  /** Null: the object is of a kind that the page does not show. */
  apply({ action: code, object }: WatchMessage_Event): Change | null {
    const action = actions[code];
    if (action === undefined || object === null) return null;
    this.version += 1;
    const put = <Value extends Versioned>(kind: Kind<Value>, value: Value): Value | undefined =>
      action === "remove" ? kind.drop(value) : kind.take(value);
    const { network, node, service, task } = object;
    if (task !== null) return { action, kind: "task", object: task, before: put(this.#tasks, task) };
    if (node !== null) return { action, kind: "node", object: node, before: put(this.#nodes, node) };
    if (service !== null) return { action, kind: "service", object: service, before: put(this.#services, service) };
    if (network !== null) return { action, kind: "network", object: network, before: put(this.#networks, network) };
    return null;
  }
}
