/** Nodes × tasks: for each node the groups of its tasks by service, in a stable order. */
import { TaskState, type Node, type Task } from "../../../proto/gen/cluster.ts";
import type { ClusterObjects } from "./objects.ts";
import { cpusOf, memoryOf, nodeNames, nodeState, type Reservation } from "./nodes.ts";
import { currentTasks, lookOf, stateName, stateOf, taskName, type Look } from "./tasks.ts";

interface Cell {
  readonly id: string;
  readonly look: Look;
  /** Such as `web.2: running`. */
  readonly label: string;
}

interface Group {
  readonly serviceId: string;
  readonly name: string;
  readonly cells: readonly Cell[];
}

/** A card: one node, or the tasks without a node. */
export interface Card {
  /** Empty: tasks without a node. */
  readonly id: string;
  readonly name: string;
  readonly node: Node | null;
  readonly groups: readonly Group[];
  readonly size: number;
  readonly cpus: Reservation;
  readonly memory: Reservation;
  /** Equal: nothing that the card shows has changed. */
  readonly signature: string;
}

const none: Reservation = { reserved: 0, total: 0 };

function groupsOf(tasks: readonly Task[], nodeName: (id: string) => string): readonly Group[] {
  const groups = new Map<string, { readonly name: string; readonly tasks: Task[] }>();
  for (const task of tasks) {
    const name = task.serviceAnnotations?.name || task.serviceId || "no service";
    const group = groups.get(task.serviceId) ?? { name, tasks: [] };
    group.tasks.push(task);
    groups.set(task.serviceId, group);
  }
  return [...groups]
    .toSorted(([, a], [, b]) => a.name.localeCompare(b.name))
    .map(([serviceId, group]) => ({
      serviceId,
      name: group.name,
      cells: group.tasks
        .toSorted((a, b) => a.slot - b.slot || (a.id < b.id ? -1 : 1))
        .map((task) => ({
          id: task.id,
          look: lookOf(task),
          label: `${taskName(task, nodeName)}: ${cellState(task)}`,
        })),
    }));
}

/** The state, the state wanted if it is another, and the error. */
function cellState(task: Task): string {
  const state = stateOf(task);
  const wanted = lookOf(task) === "stopping" ? ", to stop" : "";
  const error = state === TaskState.RUNNING ? "" : (task.status?.err ?? "");
  return `${stateName(state)}${wanted}${error === "" ? "" : ` (${error})`}`;
}

function cardOf(node: Node | null, tasks: readonly Task[], nodeName: (id: string) => string): Card {
  const groups = groupsOf(tasks, nodeName);
  const cpus = node === null ? none : cpusOf(node, tasks);
  const memory = node === null ? none : memoryOf(node, tasks);
  const cells = groups.flatMap((group) => [group.name, ...group.cells.map(({ id, look }) => `${id} ${look}`)]);
  return {
    id: node?.id ?? "",
    name: node === null ? "no node yet" : nodeName(node.id),
    node,
    groups,
    size: tasks.length,
    cpus,
    memory,
    signature: [node?.meta?.version?.index ?? 0, cpus.reserved, memory.reserved, ...cells].join(" "),
  };
}

/** Nodes in need of attention first, then by name; tasks without a node come before all. */
export function cardsOf(objects: ClusterObjects): readonly Card[] {
  const nodeName = nodeNames(objects.nodes.values());
  const byNode = new Map<string, Task[]>();
  for (const task of currentTasks(objects.tasks.values())) {
    const id = objects.nodes.has(task.nodeId) ? task.nodeId : "";
    const tasks = byNode.get(id) ?? [];
    tasks.push(task);
    byNode.set(id, tasks);
  }
  const unplaced = byNode.get("") ?? [];
  const isWell = (node: Node): number => (nodeState(node) === "ready" ? 1 : 0);
  const nodes = [...objects.nodes.values()].toSorted(
    (a, b) => isWell(a) - isWell(b) || nodeName(a.id).localeCompare(nodeName(b.id), "en", { numeric: true }),
  );
  return [
    ...(unplaced.length > 0 ? [cardOf(null, unplaced, nodeName)] : []),
    ...nodes.map((node) => cardOf(node, byNode.get(node.id) ?? [], nodeName)),
  ];
}

/** The cell to which a key leads from the one with `id`; null: the key does nothing. */
export function cellAfter(key: string, id: string, cards: readonly Card[]): string | null {
  const rows = cards
    .map((card) => card.groups.flatMap((group) => group.cells.map((cell) => cell.id)))
    .filter((row) => row.length > 0);
  const cells = rows.flat();
  const at = cells.indexOf(id);
  const row = rows.findIndex((each) => each.includes(id));
  const column = rows[row]?.indexOf(id) ?? 0;
  const clamp = (index: number, size: number): number => Math.max(0, Math.min(size - 1, index));
  const inRow = (index: number): string | null => {
    const next = rows[clamp(index, rows.length)] ?? [];
    return next[clamp(column, next.length)] ?? null;
  };
  switch (key) {
    case "ArrowRight":
      return cells[clamp(at + 1, cells.length)] ?? null;
    case "ArrowLeft":
      return cells[clamp(at - 1, cells.length)] ?? null;
    case "ArrowDown":
      return inRow(row + 1);
    case "ArrowUp":
      return inRow(row - 1);
    case "Home":
      return cells[0] ?? null;
    case "End":
      return cells.at(-1) ?? null;
    default:
      return null;
  }
}
