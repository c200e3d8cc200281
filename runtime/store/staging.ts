/**
 * The state as it will be once the append that is being put together has happened: a replica seen through the changes
 * staged so far. Each operation is decided against it, so that operations of one append see each other.
 */
import { Meta, Timestamp, Version, type Change } from "../../proto/gen/messages.ts";
import { patchNode, patchTask } from "./patch.ts";
import type { Store, TableName, Tables } from "./store.ts";
import { nameKey, tableOf, unwrap, withMeta, type AnyObject } from "./tables.ts";

interface Undo {
  readonly key: string;
  /** What was staged there before; undefined: nothing was. */
  readonly staged: AnyObject | null | undefined;
}

export class Staging {
  readonly #base: Store;
  readonly #meta: Meta;
  /** By table and id; null: removed. */
  readonly #objects = new Map<string, AnyObject | null>();
  /** By table and name: ids of staged objects that have, or had, the name. */
  readonly #names = new Map<string, string[]>();
  readonly #journal: Undo[] = [];

  constructor(base: Store) {
    this.#base = base;
    // The append takes the next sequence or fails, so this is the version that staged objects will have.
    const version = Version.create({ index: base.version + 1 });
    this.#meta = Meta.create({ version, createdAt: Timestamp.create(), updatedAt: Timestamp.create() });
  }

  get<Name extends TableName>(table: Name, id: string): Tables[Name] | undefined {
    // Nothing staged yet in most look-ups of a small append: no key is made for them.
    const staged = this.#objects.size === 0 ? undefined : this.#objects.get(`${table}/${id}`);
    if (staged === undefined) return this.#base.get(table, id);
    return staged === null ? undefined : (staged as Tables[Name]);
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

  /** Takes a change that was decided against this view. */
  stage(change: Change): void {
    if (change.task !== null) {
      const task = this.get("task", change.task.id);
      if (task !== undefined) this.#set("task", task.id, patchTask(task, change.task, this.#meta));
    } else if (change.node !== null) {
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
      const name = nameKey(put.table, object as never);
      if (name === "" || put.table === "task") return;
      // Not undone by a rollback: whoever asks looks at whether the object still has the name.
      const ids = this.#names.get(`${put.table}/${name}`);
      if (ids === undefined) this.#names.set(`${put.table}/${name}`, [object.id]);
      else ids.push(object.id);
    }
  }

  mark(): number {
    return this.#journal.length;
  }

  /** Forgets what was staged since `mark`. */
  rollback(mark: number): void {
    while (this.#journal.length > mark) {
      const { key, staged } = this.#journal.pop() as Undo;
      if (staged === undefined) this.#objects.delete(key);
      else this.#objects.set(key, staged);
    }
  }

  #set(table: TableName, id: string, object: AnyObject | null): void {
    const key = `${table}/${id}`;
    this.#journal.push({ key, staged: this.#objects.get(key) });
    this.#objects.set(key, object);
  }
}
