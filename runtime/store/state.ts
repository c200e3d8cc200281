/**
 * A replica's tables and their indices, independent of a log. Indices contain ids; an update that moves nothing (such as most
 * status reports) touches none of them.
 */
import type { Task, TaskSpec } from "../../proto/gen/messages.ts";
import { MultiIndex } from "./multi-index.ts";
import { nameKey, type AnyObject } from "./tables.ts";
import { tableNames, type TableName } from "../../proto/table-names.ts";
import type { Tables } from "./store.ts";

type TableMaps = { readonly [Name in TableName]: Map<string, Tables[Name]> };
type NameIndices = { readonly [Name in TableName]: MultiIndex<string> };

function forEachTable<Value>(make: () => Value): { [Name in TableName]: Value } {
  return Object.fromEntries(tableNames.map((table) => [table, make()])) as { [Name in TableName]: Value };
}

export class State {
  readonly #tables = forEachTable(() => new Map()) as TableMaps;
  readonly #names: NameIndices = forEachTable(() => new MultiIndex<string>());
  /** Service id → slot → task ids. */
  readonly #slots = new Map<string, MultiIndex<number>>();
  readonly #byNode = new MultiIndex<string>();
  readonly #references = new MultiIndex<string>();
  /** Ids that a spec references; specs are shared, so this is computed once for each. */
  readonly #mentions = new WeakMap<TaskSpec, readonly string[]>();

  get<Name extends TableName>(table: Name, id: string): Tables[Name] | undefined {
    // Most look-ups are for tasks and nodes, and a fixed property is faster than a look-up by name.
    const found =
      table === "task"
        ? this.#tables.task.get(id)
        : table === "node"
          ? this.#tables.node.get(id)
          : this.#tables[table].get(id);
    return found as Tables[Name] | undefined;
  }

  all<Name extends TableName>(table: Name): Iterable<Tables[Name]> {
    return this.#tables[table].values();
  }

  count(table: TableName): number {
    return this.#tables[table].size;
  }

  byName<Name extends TableName>(table: Name, name: string): Tables[Name] | undefined {
    const key = name.toLowerCase();
    const id = this.#names[table].first(key);
    if (id !== undefined) return this.get(table, id);
    return table === "task" ? (this.#taskByComputedName(key) as Tables[Name] | undefined) : undefined;
  }

  *tasksByService(serviceId: string): Generator<Task> {
    const slots = this.#slots.get(serviceId);
    if (slots !== undefined) yield* this.#tasks(slots.allIds());
  }

  tasksByNode(nodeId: string): Generator<Task> {
    return this.#tasks(this.#byNode.ids(nodeId));
  }

  *tasksBySlot(serviceId: string, slot: number): Generator<Task> {
    const slots = this.#slots.get(serviceId);
    if (slots !== undefined) yield* this.#tasks(slots.ids(slot));
  }

  /** A node has some hundred tasks, slot 0 of a service as many as there are nodes: so this scans the node's tasks. */
  *tasksAt(serviceId: string, slot: number, nodeId: string): Generator<Task> {
    // The slots of a replicated job start at 0.
    if (slot !== 0 || this.get("service", serviceId)?.spec?.replicatedJob != null) {
      yield* this.tasksBySlot(serviceId, slot);
      return;
    }
    // A task of a removed replicated job that never had a node is in no index.
    const near = nodeId === "" ? this.tasksBySlot(serviceId, slot) : this.tasksByNode(nodeId);
    for (const task of near) {
      if (task.slot === 0 && task.serviceId === serviceId && task.nodeId === nodeId) yield task;
    }
  }

  tasksReferencing(id: string): Generator<Task> {
    return this.#tasks(this.#references.ids(id));
  }

  /** Inserts the object, or replaces the one with the same id, which keeps its position. */
  put<Name extends TableName>(table: Name, object: Tables[Name], old: Tables[Name] | undefined): void {
    const { id } = object;
    if (table !== "task") (this.#tables[table] as Map<string, Tables[Name]>).set(id, object);
    else {
      this.#tables.task.set(id, object as Task);
      this.#indexTask(object as Task, old as Task | undefined);
      if ((object as Task).annotations === (old as Task | undefined)?.annotations) return;
    }
    const name = nameKey(table, object);
    const oldName = old === undefined ? "" : nameKey(table, old);
    if (name === oldName) return;
    if (oldName !== "") this.#names[table].delete(oldName, id);
    if (name !== "") this.#names[table].add(name, id);
  }

  remove<Name extends TableName>(table: Name, old: Tables[Name]): void {
    const { id } = old;
    this.#tables[table].delete(id);
    const name = nameKey(table, old);
    if (name !== "") this.#names[table].delete(name, id);
    if (table === "task") this.#unindexTask(old as AnyObject as Task);
  }

  clear(): void {
    for (const table of tableNames) {
      this.#tables[table].clear();
      this.#names[table].clear();
    }
    this.#slots.clear();
    this.#byNode.clear();
    this.#references.clear();
  }

  *#tasks(ids: Iterable<string>): Generator<Task> {
    for (const id of ids) {
      const task = this.#tables.task.get(id);
      if (task !== undefined) yield task;
    }
  }

  #indexTask(task: Task, old: Task | undefined): void {
    if (old === undefined) {
      this.#slotsOf(task.serviceId).add(task.slot, task.id);
      if (task.nodeId !== "") this.#byNode.add(task.nodeId, task.id);
      for (const id of this.#mentionsOf(task)) this.#references.add(id, task.id);
      return;
    }
    if (old.spec !== task.spec || old.serviceId !== task.serviceId || old.slot !== task.slot) {
      this.#unindexTask(old);
      this.#indexTask(task, undefined);
      return;
    }
    if (old.nodeId === task.nodeId) return;
    if (old.nodeId !== "") this.#byNode.delete(old.nodeId, task.id);
    if (task.nodeId !== "") this.#byNode.add(task.nodeId, task.id);
  }

  #unindexTask(task: Task): void {
    const slots = this.#slotsOf(task.serviceId);
    slots.delete(task.slot, task.id);
    if (slots.size === 0) this.#slots.delete(task.serviceId);
    if (task.nodeId !== "") this.#byNode.delete(task.nodeId, task.id);
    for (const id of this.#mentionsOf(task)) this.#references.delete(id, task.id);
  }

  #slotsOf(serviceId: string): MultiIndex<number> {
    let slots = this.#slots.get(serviceId);
    if (slots === undefined) {
      slots = new MultiIndex();
      this.#slots.set(serviceId, slots);
    }
    return slots;
  }

  #mentionsOf(task: Task): readonly string[] {
    const { spec } = task;
    if (spec === null) return [];
    let mentions = this.#mentions.get(spec);
    if (mentions === undefined) {
      const container = spec.container;
      const ids = [
        ...(container?.secrets ?? []).map((reference) => reference.secretId),
        ...(container?.configs ?? []).map((reference) => reference.configId),
        ...spec.networks.map((attachment) => attachment.target),
        ...spec.resourceReferences.map((reference) => reference.resourceId),
      ];
      mentions = [...new Set(ids)].filter((id) => id !== "");
      this.#mentions.set(spec, mentions);
    }
    return mentions;
  }

  /** `<service>.<slot>.<task id>`, or with the node's id instead of slot 0: SwarmKit's name for a task without a name. */
  #taskByComputedName(key: string): Task | undefined {
    const task = this.#tables.task.get(key.slice(key.lastIndexOf(".") + 1));
    if (task === undefined || (task.annotations?.name ?? "") !== "") return undefined;
    const place = task.slot === 0 ? task.nodeId : String(task.slot);
    return `${task.serviceAnnotations?.name ?? ""}.${place}.${task.id}`.toLowerCase() === key ? task : undefined;
  }
}
