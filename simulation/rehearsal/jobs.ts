/**
 * The executions of jobs. An ordinary job has one, and another with each update that starts its work again; those of a
 * scheduled job are its runs, which are services of their own.
 */
import { isAttempt } from "../../machines/orchestration/restart.machine.ts";
import { iterationOf } from "../../machines/orchestration/jobs/places.ts";
import { progressOf, type JobPhase } from "../../machines/orchestration/jobs/progress.ts";
import { scheduleOf } from "../../machines/orchestration/jobs/runs.ts";
import { isEnded, isWanted, observedState } from "../../machines/task.ts";
import { TaskState, type Service, type Task } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { JobExecution } from "./outcome.ts";

interface Execution {
  readonly serviceId: string;
  readonly beganMs: number;
  endedMs: number | null;
  state: JobPhase | "removed" | "replaced";
  total: number;
  done: number;
  failedTasks: number;
  /** Tasks that should run and have not ended. */
  live: number;
}

/** A job, without its runs. */
interface Job {
  readonly name: string;
  /** Its own, and those of its runs. */
  readonly serviceIds: string[];
}

/** Executions of one job, with the services that had them. */
interface JobExecutions {
  readonly name: string;
  readonly serviceIds: readonly string[];
  readonly executions: readonly JobExecution[];
}

export class Jobs {
  readonly #onEnded: (text: string) => void;
  /** By service id, in order of creation, also removed ones. */
  readonly #jobs = new Map<string, Job>();
  /** By service id, oldest first; the position is the iteration. */
  readonly #executions = new Map<string, Execution[]>();
  /** Changed by the present commit. */
  readonly #touched = new Set<Execution>();

  /** `onEnded`: called with a sentence when an execution is over. */
  constructor(onEnded: (text: string) => void) {
    this.#onEnded = onEnded;
  }

  /** A job, a scheduled job or a run has changed. */
  note(service: Service, isRemoved: boolean, atMs: number): void {
    const name = service.spec?.annotations?.name ?? "";
    const scheduleId = scheduleOf(service);
    const job = scheduleId === null ? undefined : this.#jobs.get(scheduleId);
    if (job !== undefined && !job.serviceIds.includes(service.id)) job.serviceIds.push(service.id);
    else if (job === undefined && !this.#jobs.has(service.id))
      this.#jobs.set(service.id, { name, serviceIds: [service.id] });
    const executions = this.#executionsOf(service.id, iterationOf(service), atMs);
    const [current] = executions.slice(-1);
    for (const each of executions) if (each !== current) end(each, "replaced", atMs);
    if (current === undefined) return;
    if (isRemoved || service.pendingDelete) end(current, "removed", atMs);
    else this.#touched.add(current);
  }

  noteTask(old: Task | null, task: Task | null, atMs: number): void {
    const { jobIteration, serviceId } = (task ?? old) as Task;
    if (jobIteration === null) return;
    const execution = this.#executionsOf(serviceId, jobIteration.index, atMs)[jobIteration.index];
    if (execution === undefined) return;
    execution.live += Number(task !== null && isLive(task)) - Number(old !== null && isLive(old));
    if (task !== null && isFailed(task) && (old === null || !isFailed(old))) execution.failedTasks += 1;
    this.#touched.add(execution);
  }

  /** After the changes of a commit. */
  settle(store: Store, atMs: number): void {
    for (const execution of this.#touched) this.#judge(execution, store, atMs);
    this.#touched.clear();
  }

  /** A job may also end without a change of it, such as when it no longer waits for a node. */
  sample(store: Store, atMs: number): void {
    for (const executions of this.#executions.values())
      for (const each of executions) if (each.endedMs === null) this.#judge(each, store, atMs);
  }

  /** All jobs, with times since `began`. */
  all(store: Store | null, began: number): readonly JobExecutions[] {
    return [...this.#jobs.values()].map(({ name, serviceIds }) => ({
      name,
      serviceIds,
      executions: serviceIds
        .flatMap((id) => this.#executions.get(id) ?? [])
        .filter(({ state }) => state !== "scheduled")
        .map((each) => {
          if (store !== null && each.endedMs === null) this.#measure(each, store);
          const { beganMs, done, endedMs, failedTasks, state, total } = each;
          return {
            beganMs: Math.round(beganMs - began),
            endedMs: endedMs === null ? null : Math.round(endedMs - began),
            state,
            total,
            done,
            failedTasks,
          };
        }),
    }));
  }

  #executionsOf(serviceId: string, iteration: number, atMs: number): readonly Execution[] {
    let executions = this.#executions.get(serviceId);
    if (executions === undefined) this.#executions.set(serviceId, (executions = []));
    while (executions.length <= iteration)
      executions.push({
        serviceId,
        beganMs: atMs,
        endedMs: null,
        state: "working",
        total: 0,
        done: 0,
        failedTasks: 0,
        live: 0,
      });
    return executions;
  }

  #judge(execution: Execution, store: Store, atMs: number): void {
    const { serviceId, state } = execution;
    if (state === "removed" || state === "replaced") return;
    // As long as tasks run, it is not over, and a job of many tasks is costly to count.
    if (execution.live > 0) execution.endedMs = null;
    else if (!this.#measure(execution, store)) execution.endedMs = null;
    else if (execution.endedMs === null) {
      execution.endedMs = atMs;
      const name = store.get("service", serviceId)?.spec?.annotations?.name ?? serviceId;
      this.#onEnded(`job ${name} has ${execution.state}`);
    }
  }

  /** True: all its work is over. */
  #measure(execution: Execution, store: Store): boolean {
    const { serviceId } = execution;
    const service = store.get("service", serviceId);
    const current = this.#executions.get(serviceId)?.at(-1);
    if (service === undefined || current !== execution) return false;
    const view = { nodeOf: (id: string) => store.get("node", id), nodes: () => store.all("node") };
    const { done, finishedMs, phase, total } = progressOf(service, store.tasksByService(serviceId), view);
    execution.state = phase;
    execution.done = done;
    execution.total = total;
    return finishedMs !== null;
  }
}

function end(execution: Execution, state: "removed" | "replaced", atMs: number): void {
  if (execution.endedMs !== null) return;
  execution.endedMs = atMs;
  execution.state = state;
}

function isLive(task: Task): boolean {
  return isWanted(task) && !isEnded(observedState(task));
}

/** A run that was lost with its node, stopped or evicted has not failed. */
function isFailed(task: Task): boolean {
  const state = observedState(task);
  return (state === TaskState.FAILED || state === TaskState.REJECTED) && isAttempt(task);
}
