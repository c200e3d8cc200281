/** Records of each run of a task on a driver plugin, for a later agent process. */
import type { AgentDisk, TaskExit } from "./ports.ts";

/** Prefix of the records' names on the disk; the task's id follows. */
const prefix = "driver-run.";

export interface RunRecord {
  /** The plugin's id of the task. */
  readonly id: string;
  readonly stopSignal: string;
  readonly stopGraceMs: number;
  /** Null until its end is known. */
  readonly exit: TaskExit | null;
}

export class RunRecords {
  readonly #disk: AgentDisk;

  constructor(disk: AgentDisk) {
    this.#disk = disk;
  }

  /** Resolves when it is durable. */
  save(taskId: string, record: RunRecord): Promise<void> {
    return this.#disk.save(prefix + taskId, new TextEncoder().encode(JSON.stringify(record)));
  }

  /** Null when the task was never started here. */
  async load(taskId: string): Promise<RunRecord | null> {
    const bytes = await this.#disk.load(prefix + taskId);
    if (bytes === null) return null;
    try {
      return JSON.parse(new TextDecoder().decode(bytes)) as RunRecord;
    } catch {
      return null; // a partial record is impossible: the disk keeps whole ones
    }
  }

  remove(taskId: string): Promise<void> {
    return this.#disk.remove(prefix + taskId);
  }
}
