/**
 * A driver's tasks by id, from `start` or `recover` until `destroy`.
 *
 * Stages of a task: starting → running → exited → destroyed (forgotten).
 *
 * T1: a second start of the same id is refused, also while the first is in progress.
 * T2: only `destroy` makes a task forgotten; until then its exit can be queried any number of times.
 * T3: stopping or destroying an unknown task succeeds: a host repeats the call if it does not know whether the last one
 *     arrived.
 */
import { RpcError, Status } from "../../../runtime/ports/rpc.ts";
import { unknownTask } from "../../../runtime/ports/plugins.ts";
import type { RunningTask, TaskExit } from "./driver.ts";
import type { TaskConfig } from "../../../proto/gen/nomad.ts";

export interface KnownTask {
  readonly config: TaskConfig;
  readonly running: RunningTask;
  readonly startedAtMs: number;
  /** Null while it runs. */
  exit: TaskExit | null;
  /** 0 while it runs. */
  exitedAtMs: number;
}

export class TaskTable {
  readonly #tasks = new Map<string, KnownTask | "starting">();

  /** Adds the task that `begin` starts. Rejects if `begin` does, with the same error. */
  async add(config: TaskConfig, begin: () => RunningTask | Promise<RunningTask>): Promise<KnownTask> {
    const { id } = config;
    if (this.#tasks.has(id)) throw new RpcError(Status.UNKNOWN, `task with ID "${id}" already started`);
    this.#tasks.set(id, "starting");
    try {
      const running = await begin();
      const startedAtMs = running.startedAtMs ?? Date.now();
      const task: KnownTask = { config, running, startedAtMs, exit: null, exitedAtMs: 0 };
      this.#tasks.set(id, task);
      void running.exited
        .catch((error: unknown): TaskExit => ({ exitCode: -1, signal: 0, oomKilled: false, err: String(error) }))
        .then((exit) => {
          task.exit = exit;
          task.exitedAtMs = Date.now();
        });
      return task;
    } catch (error) {
      this.#tasks.delete(id);
      throw error;
    }
  }

  /** Tasks that run or are being started. */
  get running(): number {
    let count = 0;
    for (const task of this.#tasks.values()) if (task === "starting" || task.exit === null) count += 1;
    return count;
  }

  get size(): number {
    return this.#tasks.size;
  }

  has(id: string): boolean {
    return this.#tasks.has(id);
  }

  /** Throws if the task is unknown or still starting. */
  get(id: string): KnownTask {
    const task = this.#tasks.get(id);
    if (task === undefined || task === "starting") throw unknownTask();
    return task;
  }

  async stop(id: string, signal: string, timeoutMs: number): Promise<void> {
    const task = this.#tasks.get(id);
    if (task === undefined || task === "starting" || task.exit !== null) return;
    await task.running.stop(signal, timeoutMs);
    await task.running.exited.catch(() => {});
  }

  async destroy(id: string, force: boolean): Promise<void> {
    const task = this.#tasks.get(id);
    if (task === undefined || task === "starting") return;
    if (task.exit === null) {
      if (!force) throw new RpcError(Status.UNKNOWN, "cannot destroy running task");
      await this.stop(id, "SIGKILL", 0);
    }
    await task.running.destroy?.();
    // A second call that waited for the same stop may have done this already.
    if (this.#tasks.get(id) === task) this.#tasks.delete(id);
  }
}
