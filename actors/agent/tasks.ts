/**
 * The tasks of one node: creates an actor for each assigned task, finds those of an earlier agent process, and passes changes
 * on.
 *
 * L1: a task that was finished or running in an earlier process is looked up before the first session, so that every running
 *     task has an actor.
 * L2: for a task with an actor, its own status counts, not the manager's; only its desired state can change, and only upwards.
 * L3: a task that was not started according to the disk waits for the manager's first message: secrets and configs are not on
 *     the disk, and the disk may be an older one, for example after a restored snapshot. If the manager has a later state of
 *     the task, the task continues from that state, so a started one is not started again (K3 of its chart).
 */
import { isEnded, observedState } from "../../machines/task.ts";
import { planAssignments } from "../../machines/agent/assignments.ts";
import {
  Task,
  TaskState,
  type AssignmentsMessage,
  type Config,
  type Secret,
  type TaskStatus,
} from "../../proto/gen/messages.ts";
import { isSubjectToken } from "../../runtime/ids.ts";
import { taskRecords, TaskActor, type TaskOptions } from "./task.ts";
import type { AgentDrivers } from "./drivers.ts";
import type { CallTarget } from "./calls.ts";
import type { AgentPorts } from "./ports.ts";
import type { LogSource } from "./logs.ts";
import type { StatusReports } from "./reports.ts";
import { NodeVolumes } from "./node-volumes.ts";

/**
 * How long an agent that stops everything waits while all remaining tasks have an unreachable driver, in milliseconds: longer
 * than it takes to detect and restart a hanging one.
 */
export const unreachableMsMax = 120_000;
/** Interval of checking that, in milliseconds. */
const lookMs = 1_000;

export class AgentTasks {
  readonly volumes: NodeVolumes;
  readonly #ports: AgentPorts;
  readonly #actors = new Map<string, TaskActor>();
  /** Tasks being removed: the actor stops what still runs. A task that is assigned again meanwhile waits for that. */
  readonly #leaving = new Map<string, { readonly actor: TaskActor; successor: Task | null }>();
  /** L3 */
  readonly #waiting = new Map<string, Task>();
  readonly #secrets = new Map<string, Secret>();
  readonly #configs = new Map<string, Config>();
  readonly #options: TaskOptions;
  readonly #onAssigned: (source: LogSource) => void;
  #whenEmpty: (() => void) | null = null;

  constructor(
    ports: AgentPorts,
    options: {
      readonly drivers: AgentDrivers;
      readonly reports: StatusReports;
      readonly nodeHostname: string;
      /** Called when the storage plugins in the node's description have changed. */
      readonly onPlugins: () => void;
      /** Called for each newly assigned task. */
      readonly onAssigned: (source: LogSource) => void;
    },
  ) {
    this.#ports = ports;
    this.#onAssigned = options.onAssigned;
    this.volumes = new NodeVolumes(ports, { secrets: this.#secrets, onPlugins: options.onPlugins });
    this.#options = {
      reports: options.reports,
      drivers: options.drivers,
      nodeHostname: options.nodeHostname,
      secrets: this.#secrets,
      configs: this.#configs,
      volumes: this.volumes,
      onForgotten: (taskId) => this.#forgotten(taskId),
    };
  }

  /** L1 */
  async load(): Promise<void> {
    const { disk, telemetry } = this.#ports;
    const tasks = new Map<string, Task>();
    for (const name of await disk.list(taskRecords)) {
      const saved = await disk.load(name);
      if (saved === null) continue;
      try {
        const task = Task.decode(saved);
        tasks.set(task.id, task);
      } catch (error) {
        telemetry.log.error(
          { error, record: name },
          "cannot read a task's record; the manager will assign the task again",
        );
      }
    }
    const mayRun = (task: Task): boolean => !isEnded(observedState(task));
    await this.#options.drivers.loadTakenAway((kind) =>
      [...tasks.values()].some((task) => mayRun(task) && task.spec?.generic?.kind === kind),
    );
    await this.#options.drivers.loadNetworks((id) => {
      const task = tasks.get(id);
      return task !== undefined && mayRun(task);
    });
    for (const task of tasks.values()) {
      if (task.status !== null) this.#options.reports.know(task.id, task.status);
      if (isUnstarted(task)) this.#waiting.set(task.id, task);
      else this.#actors.set(task.id, new TaskActor(this.#ports, this.#options, task));
    }
  }

  apply(message: AssignmentsMessage): void {
    const plan = planAssignments(message, [...this.#actors.keys(), ...this.#waiting.keys()]);
    if (plan.isComplete) {
      this.#secrets.clear();
      this.#configs.clear();
    }
    for (const secret of plan.secrets) this.#secrets.set(secret.id, secret);
    for (const config of plan.configs) this.#configs.set(config.id, config);
    this.#resume(plan.tasks);
    for (const volume of plan.volumes) this.volumes.assign(volume);
    for (const task of plan.tasks) this.#assign(task);
    for (const volume of plan.removedVolumes) this.volumes.remove(volume);
    for (const id of plan.removedTasks) this.#remove(id);
    for (const id of plan.removedSecrets) this.#secrets.delete(id);
    for (const id of plan.removedConfigs) this.#configs.delete(id);
    this.#ports.telemetry.metrics
      .gauge("muster_agent_tasks", "Tasks assigned to the node, including ended ones.")
      .set(this.#actors.size);
  }

  /** Id and newest state of each task. */
  list(): readonly { readonly id: string; readonly state: TaskState }[] {
    const waiting = [...this.#waiting].map(([id, { status }]) => ({ id, state: status?.state ?? TaskState.ASSIGNED }));
    return [...[...this.#actors].map(([id, { state }]) => ({ id, state })), ...waiting];
  }

  /** The output of each task, including those being removed. */
  sources(): readonly LogSource[] {
    const leaving = [...this.#leaving.values()].map(({ actor }) => actor);
    return [...this.#actors.values(), ...leaving].map(({ source }) => source);
  }

  /** The target of calls to a task's driver. */
  callable(taskId: string): CallTarget {
    const actor = this.#actors.get(taskId);
    return actor === undefined ? { reason: `this node does not have task ${taskId}` } : actor.callable;
  }

  /**
   * Stops and forgets every task; resolves when nothing of any is left. A task whose driver is unreachable for
   * `unreachableMsMax` is left running: its record stays, so a later agent finds it.
   */
  async clear(): Promise<void> {
    this.#resume([]);
    for (const id of this.#actors.keys()) this.#remove(id);
    for (const leaving of this.#leaving.values()) leaving.successor = null;
    if (this.#leaving.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#whenEmpty = resolve;
    this.#giveUpUnreachable(resolve);
    await promise;
  }

  #giveUpUnreachable(giveUp: () => void): void {
    const { clock, telemetry } = this.#ports;
    let unreachableMs = 0;
    const look = (): void => {
      if (this.#leaving.size === 0) return;
      const isReachable = [...this.#leaving.values()].some(({ actor }) => actor.isReachable);
      unreachableMs = isReachable ? 0 : unreachableMs + lookMs;
      if (unreachableMs < unreachableMsMax) clock.setTimeout(look, lookMs);
      else {
        telemetry.log.error(
          { tasks: [...this.#leaving.keys()] },
          "leaving tasks running whose drivers are unreachable",
        );
        giveUp();
      }
    };
    clock.setTimeout(look, lookMs);
  }

  /** Stops the actors; running tasks keep running and are found again. */
  stop(): void {
    for (const actor of this.#actors.values()) actor.stop();
    for (const { actor } of this.#leaving.values()) actor.stop();
    this.volumes.stop();
    this.#actors.clear();
    this.#leaving.clear();
    this.#waiting.clear();
  }

  /** L3: the first message is complete: contents that are missing now never come. */
  #resume(assigned: readonly Task[]): void {
    if (this.#waiting.size === 0) return;
    const told = new Map(assigned.map(({ id, status }) => [id, status]));
    for (const [id, task] of this.#waiting) {
      const status = farther(task.status, told.get(id) ?? null);
      if (status !== null && status !== task.status) {
        const fields = { task: id, here: observedState(task), there: status.state };
        this.#ports.telemetry.log.warn(fields, "the manager has a later state of a task than this node's disk");
        this.#options.reports.know(id, status);
      }
      this.#actors.set(id, new TaskActor(this.#ports, this.#options, Task.patch(task, { status })));
    }
    this.#waiting.clear();
  }

  /** L2 */
  #assign(task: Task): void {
    const known = this.#actors.get(task.id);
    if (known !== undefined) {
      known.raiseDesired(task.desiredState);
      return;
    }
    const leaving = this.#leaving.get(task.id);
    if (leaving !== undefined) {
      leaving.successor = task;
      return;
    }
    // The id becomes a file name.
    if (!isSubjectToken(task.id)) {
      this.#ports.telemetry.log.error({ task: task.id }, "ignored an assigned task with an invalid id");
      return;
    }
    if (task.status !== null && task.status.state >= TaskState.ACCEPTED)
      this.#options.reports.know(task.id, task.status);
    const actor = new TaskActor(this.#ports, this.#options, task);
    this.#actors.set(task.id, actor);
    this.#onAssigned(actor.source);
  }

  #remove(id: string): void {
    const leaving = this.#leaving.get(id);
    if (leaving !== undefined) leaving.successor = null;
    const actor = this.#actors.get(id);
    if (actor === undefined) return;
    this.#actors.delete(id);
    this.#leaving.set(id, { actor, successor: null });
    this.#options.reports.forget(id);
    actor.remove();
  }

  #forgotten(id: string): void {
    const successor = this.#leaving.get(id)?.successor ?? null;
    this.#leaving.delete(id);
    if (successor !== null) this.#assign(successor);
    if (this.#leaving.size === 0) this.#whenEmpty?.();
  }
}

function isUnstarted(task: Task): boolean {
  return observedState(task) < TaskState.STARTING;
}

/** The status with the later state; the node's own if equal. */
function farther(own: TaskStatus | null, told: TaskStatus | null): TaskStatus | null {
  return (told?.state ?? TaskState.NEW) > (own?.state ?? TaskState.NEW) ? told : own;
}
