/**
 * Operations: commands in units, followed by their ids, as in clients since 2.0. Run returns ids at once; clients poll for the
 * result, or wait for it in the deltas of an all-watcher.
 *
 * pending -> running -> completed | failed | cancelled
 *
 * AC1: a command continues when its connection ends, until its timeout.
 * AC2: operations are kept within limits, in this manager's memory: other managers, and this one after a restart, do not know
 *      them.
 */
import type { ActionStatus, ActionView } from "../entities/views.ts";
import { unitTag } from "../entities/names.ts";
import type { Call, FacadeSources } from "../facade.ts";
import { RequestError } from "../request-error.ts";
import { outputBytesMax, type Actions, type Ran } from "./actions.ts";
import { notFound, type Subjects } from "./subjects.ts";

/** Beyond this, finished operations are dropped, oldest first. */
export const operationsMax = 1_000;
/** Output that is kept: 64 MiB, or two operations in which every unit printed its maximum. */
const keptBytesMax = 64 * 2 ** 20;
/** Maximum number of running tasks, of all callers; each is a stream to an agent. */
export const runningMax = 200;

export interface ActionTask {
  readonly id: string;
  readonly unit: string;
  readonly commands: string;
  readonly enqueuedMs: number;
  readonly giveUp: AbortController;
  status: ActionStatus;
  startedMs: number | null;
  completedMs: number | null;
  /** Null until the task has ended, and for cancelled ones. */
  ran: Ran | null;
}

export interface Operation {
  readonly id: string;
  readonly commands: string;
  readonly tasks: readonly ActionTask[];
  /** Units that do not exist, with the error. */
  readonly refused: readonly { readonly unit: string; readonly error: RequestError }[];
}

export class Operations {
  readonly #sources: FacadeSources;
  readonly #subjects: Subjects;
  readonly #actions: Actions;
  readonly #operations = new Map<string, Operation>();
  readonly #tasks = new Map<string, ActionTask>();
  #last = 0;
  #keptBytes = 0;
  #running = 0;

  constructor(sources: FacadeSources, subjects: Subjects, actions: Actions) {
    this.#sources = sources;
    this.#subjects = subjects;
    this.#actions = actions;
  }

  /** Oldest first. */
  all(): Iterable<Operation> {
    return this.#operations.values();
  }

  /** By the number in its tag. Throws `not found`. */
  operation(id: string): Operation {
    const found = this.#operations.get(id);
    if (found === undefined) throw notFound("operation", JSON.stringify(id));
    return found;
  }

  /** Throws `not found`. */
  task(id: string): ActionTask {
    const found = this.#tasks.get(id);
    if (found === undefined) throw notFound("action", JSON.stringify(id));
    return found;
  }

  /** Starts the commands of a Run. Throws RequestError. */
  run(call: Call): Operation {
    const { commands, units, timeoutMs } = this.#actions.wanted(call);
    if (this.#running + units.length > runningMax)
      throw new RequestError(`more than ${runningMax} commands would run at the same time`, "try again");
    const refused: { unit: string; error: RequestError }[] = [];
    const known = units.filter((unit) => {
      try {
        return this.#subjects.unit(unit).taskId !== "";
      } catch (error) {
        if (!(error instanceof RequestError)) throw error;
        refused.push({ unit, error });
        return false;
      }
    });
    const id = this.#nextId();
    const tasks = known.map((unit) => this.#enqueue(unit, commands));
    const operation = { id, commands, tasks, refused };
    this.#operations.set(id, operation);
    for (const task of tasks) void this.#follow(call, task, timeoutMs);
    this.#forget();
    return operation;
  }

  /** Cancels a task; one that has ended is unchanged. */
  cancel(task: ActionTask): void {
    if (task.completedMs !== null) return;
    this.#end(task, "cancelled", null);
    task.giveUp.abort();
  }

  #nextId(): string {
    this.#last += 1;
    return String(this.#last);
  }

  #enqueue(unit: string, commands: string): ActionTask {
    const task: ActionTask = {
      id: this.#nextId(),
      unit,
      commands,
      enqueuedMs: this.#sources.clock.now(),
      giveUp: new AbortController(),
      status: "pending",
      startedMs: null,
      completedMs: null,
      ran: null,
    };
    this.#tasks.set(task.id, task);
    this.#show(task);
    return task;
  }

  async #follow(call: Call, task: ActionTask, timeoutMs: number): Promise<void> {
    // AC1: not the signal of the connection.
    const { signal } = task.giveUp;
    const own: Call = { ...call, session: { ...call.session, signal }, rpc: { ...call.rpc, signal } };
    this.#running += 1;
    task.status = "running";
    task.startedMs = this.#sources.clock.now();
    this.#show(task);
    try {
      const ran = await this.#actions.runIn(own, task.unit, task.commands, timeoutMs);
      if (task.completedMs === null)
        this.#end(task, ran.error === null && ran.code === 0 ? "completed" : "failed", ran);
    } catch (error) {
      this.#sources.log.error({ err: error }, "a command in a unit failed with an internal error");
      if (task.completedMs === null) this.#end(task, "failed", null);
    } finally {
      this.#running -= 1;
      this.#forget();
    }
  }

  #end(task: ActionTask, status: ActionStatus, ran: Ran | null): void {
    task.status = status;
    task.ran = ran;
    task.completedMs = this.#sources.clock.now();
    this.#keptBytes += bytesOf(task);
    this.#show(task);
  }

  /** AC2 */
  #forget(): void {
    for (const operation of this.#operations.values()) {
      if (this.#operations.size <= operationsMax && this.#keptBytes <= keptBytesMax) return;
      if (operation.tasks.some(({ completedMs }) => completedMs === null)) continue;
      this.#operations.delete(operation.id);
      for (const task of operation.tasks) {
        this.#keptBytes -= bytesOf(task);
        this.#tasks.delete(task.id);
        this.#sources.feed.showAction(task.id, null);
      }
    }
  }

  #show(task: ActionTask): void {
    this.#sources.feed.showAction(task.id, viewOf(task));
  }
}

function bytesOf({ ran }: ActionTask): number {
  return ran === null ? 0 : ran.stdout.length + ran.stderr.length;
}

const timeText = (ms: number | null): string => (ms === null ? "" : new Date(ms).toISOString());

/** The task in deltas. */
export function viewOf(task: ActionTask): ActionView {
  const { id, unit, status, enqueuedMs, startedMs, completedMs } = task;
  return {
    kind: "action",
    id,
    receiver: unitTag(unit),
    status,
    message: messageOf(task),
    enqueued: timeText(enqueuedMs),
    started: timeText(startedMs),
    completed: timeText(completedMs),
  };
}

/** Why the command could not run, or what is missing from its output. */
function messageOf({ ran, status }: ActionTask): string {
  if (ran === null) return status === "failed" ? "internal error" : "";
  if (ran.error !== null) return ran.error.message;
  return ran.isCut ? `output beyond ${outputBytesMax} bytes was dropped` : "";
}
