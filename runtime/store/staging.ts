/**
 * The state after the append that is being assembled: a replica seen through the changes staged so far. Each operation is
 * decided against it, so that operations of one append see each other.
 */
import { Meta, Timestamp, Version, type Change, type Task, type TaskPatch } from "../../proto/gen/messages.ts";
import { patchNode, patchTask } from "./patch.ts";
import type { Store, Tables } from "./store.ts";
import type { TableName } from "../../proto/table-names.ts";
import { nameKey, tableOf, unwrap, withMeta, type AnyObject } from "./tables.ts";

interface Undo {
  readonly table: TableName;
  readonly id: string;
  /** The previously staged object; undefined if there was none. */
  readonly staged: AnyObject | null | undefined;
}

export class Staging {
  readonly #base: Store;
  readonly #meta: Meta;
  /** By id; null: removed. */
  readonly #objects = new Map<TableName, Map<string, AnyObject | null>>();
  /** The tasks among `#objects`. */
  readonly #tasks = new Map<string, AnyObject | null>();
  /** The first patch of each task, not yet applied: of the thousands in an append, few tasks are read again. */
  readonly #patches = new Map<string, TaskPatch>();
  /** By table and name: ids of staged objects that have, or had, the name. */
  readonly #names = new Map<string, string[]>();
  /** Ids of staged tasks that were created for a node, by service and node. */
  readonly #madeForNodes = new Map<string, string[]>();
  /** Since the first mark; nothing rolls back beyond it. */
  #journal: Undo[] | null = null;

  constructor(base: Store) {
    this.#base = base;
    // The append gets the next sequence or fails, so this is the version that staged objects will have.
    const version = Version.create({ index: base.version + 1 });
    this.#objects.set("task", this.#tasks);
    this.#meta = Meta.create({ version, createdAt: Timestamp.create(), updatedAt: Timestamp.create() });
  }

  get<Name extends TableName>(table: Name, id: string): Tables[Name] | undefined {
    const staged = table === "task" ? this.#tasks.get(id) : this.#objects.get(table)?.get(id);
    if (staged !== undefined) return staged === null ? undefined : (staged as Tables[Name]);
    const stored = this.#base.get(table, id);
    if (table !== "task" || stored === undefined) return stored;
    const patch = this.#patches.get(id);
    if (patch === undefined) return stored;
    const patched = patchTask(stored as Task, patch, this.#meta);
    this.#tasks.set(id, patched);
    return patched as Tables[Name];
  }

  nameHolder<Name extends TableName>(table: Name, object: Tables[Name]): string | undefined {
    const name = nameKey(table, object);
    if (name === "") return undefined;
    for (const id of [...(this.#names.get(`${table}/${name}`) ?? []), this.#base.byName(table, name)?.id]) {
      if (id === undefined || id === object.id) continue;
      const holder = this.get(table, id);
      if (holder !== undefined && nameKey(table, holder) === name) return id;
    }
    return undefined;
  }

  *tasksOfNode(serviceId: string, nodeId: string): Generator<Task> {
    for (const { id } of this.#base.tasksAt(serviceId, 0, nodeId)) {
      const task = this.get("task", id);
      if (task !== undefined) yield task;
    }
    for (const id of this.#madeForNodes.get(`${serviceId}@${nodeId}`) ?? []) {
      // A rollback may have removed it.
      const task = this.get("task", id);
      if (task !== undefined) yield task;
    }
  }

  /** The network with this id, otherwise with this name. */
  network(target: string): Tables["network"] | undefined {
    return this.get("network", target) ?? this.#named("network", target);
  }

  extension(name: string): Tables["extension"] | undefined {
    return this.#named("extension", name);
  }

  services(): Iterable<Tables["service"]> {
    return this.#all("service");
  }

  networks(): Iterable<Tables["network"]> {
    return this.#all("network");
  }

  /** Iterates over everything staged: for rare queries. */
  *tasksOf(serviceId: string): Generator<Task> {
    for (const { id } of this.#base.tasksByService(serviceId)) {
      const task = this.get("task", id);
      if (task !== undefined) yield task;
    }
    for (const [id, staged] of this.#tasks) {
      const task = staged as Task | null;
      if (task?.serviceId === serviceId && this.#base.get("task", id) === undefined) yield task;
    }
  }

  resources(): Iterable<Tables["resource"]> {
    return this.#all("resource");
  }

  managers(): Iterable<Tables["manager"]> {
    return this.#all("manager");
  }

  #named<Name extends Exclude<TableName, "task">>(table: Name, name: string): Tables[Name] | undefined {
    if (name === "") return undefined;
    const key = name.toLowerCase();
    for (const id of [...(this.#names.get(`${table}/${key}`) ?? []), this.#base.byName(table, name)?.id]) {
      const found = id === undefined ? undefined : this.get(table, id);
      if (found !== undefined && nameKey(table, found) === key) return found;
    }
    return undefined;
  }

  *#all<Name extends Exclude<TableName, "task">>(table: Name): Iterable<Tables[Name]> {
    const staged = this.#objects.get(table);
    for (const object of this.#base.all(table)) if (staged?.has(object.id) !== true) yield object;
    for (const object of staged?.values() ?? []) if (object !== null) yield object as Tables[Name];
  }

  /** Adds a change that was decided against this view. */
  stage(change: Change): void {
    if (change.task !== null) this.#stageTaskPatch(change.task);
    else if (change.node !== null) {
      const node = this.get("node", change.node.id);
      if (node !== undefined) this.#set("node", node.id, patchNode(node, change.node, this.#meta));
    } else if (change.remove !== null) {
      const table = tableOf(change.remove.kind);
      if (table !== undefined) this.#set(table, change.remove.id, null);
    } else {
      const put = change.put === null ? null : unwrap(change.put);
      if (put === null) return;
      const object = withMeta(put.table, put.object as never, this.#meta) as AnyObject;
      this.#set(put.table, object.id, object);
      if (put.table === "task") this.#noteNode(put.object as Task);
      const name = nameKey(put.table, object as never);
      if (name === "" || put.table === "task") return;
      // A rollback does not undo this: callers check whether the object still has the name.
      const ids = this.#names.get(`${put.table}/${name}`);
      if (ids === undefined) this.#names.set(`${put.table}/${name}`, [object.id]);
      else ids.push(object.id);
    }
  }

  mark(): number {
    return (this.#journal ??= []).length;
  }

  /** Discards what was staged since `mark`. */
  rollback(mark: number): void {
    const journal = this.#journal ?? [];
    while (journal.length > mark) {
      const { table, id, staged } = journal.pop() as Undo;
      if (staged !== undefined) this.#tableOf(table).set(id, staged);
      else {
        this.#tableOf(table).delete(id);
        // Nothing was staged before the entry, so neither was its patch.
        if (table === "task") this.#patches.delete(id);
      }
    }
  }

  #stageTaskPatch(patch: TaskPatch): void {
    const { id } = patch;
    if (this.#tasks.has(id) || this.#patches.has(id)) {
      const task = this.get("task", id);
      if (task !== undefined) this.#set("task", id, patchTask(task, patch, this.#meta));
      return;
    }
    this.#journal?.push({ table: "task", id, staged: undefined });
    this.#patches.set(id, patch);
  }

  #set(table: TableName, id: string, object: AnyObject | null): void {
    const objects = this.#tableOf(table);
    // A rollback must be able to restore a patch that was not applied yet.
    if (table === "task" && this.#patches.has(id)) this.get("task", id);
    this.#journal?.push({ table, id, staged: objects.get(id) });
    objects.set(id, object);
  }

  #noteNode({ id, serviceId, slot, nodeId }: Task): void {
    if (slot !== 0 || nodeId === "" || this.#base.get("task", id) !== undefined) return;
    const key = `${serviceId}@${nodeId}`;
    const ids = this.#madeForNodes.get(key);
    if (ids === undefined) this.#madeForNodes.set(key, [id]);
    else ids.push(id);
  }

  #tableOf(table: TableName): Map<string, AnyObject | null> {
    let objects = this.#objects.get(table);
    if (objects === undefined) {
      objects = new Map();
      this.#objects.set(table, objects);
    }
    return objects;
  }
}
