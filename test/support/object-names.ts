/** Names of a cluster's objects by id, also of those that no longer exist: tasks as `web.1`, and `web.1#2` for the second in a slot. */
import type { Task } from "../../proto/gen/messages.ts";
import type { Replica } from "../../runtime/store/replica.ts";

export class ObjectNames {
  readonly #names = new Map<string, string>();
  /** Number of tasks by name. */
  readonly #tasks = new Map<string, number>();

  of(id: string): string | undefined {
    return this.#names.get(id);
  }

  follow(replica: Replica): void {
    replica.watch(({ changes }) => {
      for (const change of changes) {
        if (change.action === "remove") continue;
        if (change.table === "task") this.#nameTask(change.object);
        if (change.table === "service") this.#name(change.object.id, change.object.spec?.annotations?.name);
        // The report on a node's dataplane has the id of its node.
        if (change.table === "resource" && !this.#names.has(change.object.id))
          this.#name(change.object.id, change.object.annotations?.name);
        if (change.table === "extension") this.#name(change.object.id, change.object.annotations?.name);
        if (change.table === "node") this.#name(change.object.id, change.object.description?.hostname);
      }
    });
  }

  #name(id: string, name = ""): void {
    if (name !== "") this.#names.set(id, name);
  }

  #nameTask({ id, nodeId, serviceId, slot }: Task): void {
    if (this.#names.has(id)) return;
    const place = slot === 0 && nodeId !== "" ? (this.#names.get(nodeId) ?? nodeId) : String(slot);
    const name = `${this.#names.get(serviceId) ?? serviceId}.${place}`;
    const count = (this.#tasks.get(name) ?? 0) + 1;
    this.#tasks.set(name, count);
    this.#names.set(id, count === 1 ? name : `${name}#${count}`);
  }
}
