/** Texts about nodes: their names, state and reservations, and the effect of draining one. */
import {
  NodeRole,
  NodeSpec_Availability,
  NodeStatus_State,
  type Node,
  type Resources,
  type Task,
} from "../../../proto/gen/cluster.ts";
import { isEnded, isWanted } from "./tasks.ts";

const stateNames: { readonly [State in NodeStatus_State]: string } = {
  [NodeStatus_State.UNKNOWN]: "unknown",
  [NodeStatus_State.DOWN]: "down",
  [NodeStatus_State.READY]: "ready",
  [NodeStatus_State.DISCONNECTED]: "disconnected",
};

const availabilityNames: { readonly [Availability in NodeSpec_Availability]: string } = {
  [NodeSpec_Availability.ACTIVE]: "active",
  [NodeSpec_Availability.PAUSE]: "paused",
  [NodeSpec_Availability.DRAIN]: "draining",
};

export function nodeState({ status }: Node): string {
  return stateNames[status?.state ?? NodeStatus_State.UNKNOWN];
}

export function availabilityOf({ spec }: Node): NodeSpec_Availability {
  return spec?.availability ?? NodeSpec_Availability.ACTIVE;
}

export function availabilityName(availability: NodeSpec_Availability): string {
  return availabilityNames[availability];
}

/** `worker`, `manager` or `leader`. */
export function roleName({ managerStatus, role }: Node): string {
  if (managerStatus?.leader === true) return "leader";
  return role === NodeRole.MANAGER ? "manager" : "worker";
}

/** Hostnames; an id is added where several nodes have the same. */
export function nodeNames(nodes: Iterable<Node>): (id: string) => string {
  const ids = new Map<string, string[]>();
  const names = new Map<string, string>();
  for (const { id, description } of nodes) {
    const hostname = description?.hostname || id;
    ids.set(hostname, [...(ids.get(hostname) ?? []), id]);
  }
  for (const [hostname, all] of ids)
    for (const id of all) names.set(id, all.length === 1 ? hostname : `${hostname} (${id.slice(0, 8)})`);
  return (id) => names.get(id) ?? id;
}

export interface Reservation {
  readonly reserved: number;
  /** 0: unknown. */
  readonly total: number;
}

function reserved(tasks: readonly Task[], amount: (resources: Resources) => number): number {
  let sum = 0;
  for (const task of tasks) {
    const resources = task.spec?.resources?.reservations;
    if (resources != null && !isEnded(task)) sum += amount(resources);
  }
  return sum;
}

const nano = 1e9;

/** In CPUs. */
export function cpusOf(node: Node, tasks: readonly Task[]): Reservation {
  const total = (node.description?.resources?.nanoCpus ?? 0) / nano;
  return { reserved: reserved(tasks, ({ nanoCpus }) => nanoCpus) / nano, total };
}

/** In bytes. */
export function memoryOf(node: Node, tasks: readonly Task[]): Reservation {
  const total = node.description?.resources?.memoryBytes ?? 0;
  return { reserved: reserved(tasks, ({ memoryBytes }) => memoryBytes), total };
}

/** `512 MiB`, `1.5 GiB`. */
export function bytesText(bytes: number): string {
  const mebibytes = bytes / 2 ** 20;
  if (mebibytes < 1_024) return `${Math.round(mebibytes)} MiB`;
  return `${(mebibytes / 1_024).toFixed(1).replace(/\.0$/, "")} GiB`;
}

/** The effect of another availability, as a sentence; `tasks` are those of the node. */
export function availabilityEffect(
  next: NodeSpec_Availability,
  name: string,
  tasks: readonly Task[],
  nameOfService: (task: Task) => string,
): string {
  const wanted = tasks.filter((task) => isWanted(task) && !isEnded(task));
  const services = [...new Set(wanted.map(nameOfService))].toSorted();
  const count = `${wanted.length} ${wanted.length === 1 ? "task" : "tasks"}`;
  switch (next) {
    case NodeSpec_Availability.ACTIVE:
      return `${name} gets tasks again. Tasks that run elsewhere stay there.`;
    case NodeSpec_Availability.PAUSE:
      return `${name} gets no new tasks. Its ${count} continue.`;
    case NodeSpec_Availability.DRAIN:
      return wanted.length === 0
        ? `${name} gets no new tasks. It has none that would move.`
        : `${name} gets no new tasks, and its ${count} stop and start on other nodes: ${services.join(", ")}. ` +
            `Tasks of global services stop without a replacement.`;
  }
}
