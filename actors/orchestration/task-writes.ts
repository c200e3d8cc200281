/** Writes of tasks for which a round does not wait. */
import type { Operation, Task } from "../../proto/gen/messages.ts";
import type { Environment } from "../environment.ts";
import type { Writer } from "./part.ts";

/** Tasks that are written in the background: rounds must skip them until that has settled. */
export class TaskWrites {
  readonly #env: Environment;
  readonly #writer: Writer;
  readonly #settled: (operation: Operation, stored: Task | undefined) => void;
  readonly #ids = new Set<string>();
  #batch: Operation[] = [];

  /** `settled`: called when the operation has happened or was refused, with the task as it then is. */
  constructor(env: Environment, writer: Writer, settled: (operation: Operation, stored: Task | undefined) => void) {
    this.#env = env;
    this.#writer = writer;
    this.#settled = settled;
  }

  has(taskId: string): boolean {
    return this.#ids.has(taskId);
  }

  /** Number of operations to be written by `flush`. */
  get size(): number {
    return this.#batch.length;
  }

  add(operation: Operation): void {
    this.#ids.add(taskIdOf(operation));
    this.#batch.push(operation);
  }

  /** `done`: called after the last operation has settled. */
  flush(done: () => void): void {
    const operations = this.#batch;
    if (operations.length === 0) return;
    this.#batch = [];
    this.#writer.write(operations, () => {
      for (const operation of operations) {
        const id = taskIdOf(operation);
        this.#ids.delete(id);
        this.#settled(operation, this.#env.store.get("task", id));
      }
      done();
    });
  }
}

function taskIdOf({ remove, task }: Operation): string {
  return task?.id ?? remove?.id ?? "";
}
