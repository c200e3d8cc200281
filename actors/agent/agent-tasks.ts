/**
 * The tasks of one node: makes an actor for each that is assigned, finds those of the agent's earlier life again, and
 * carries changes to them.
 *
 * L1: a task that was finished or running in an earlier life is looked for before a manager is heard, so that nothing
 *     that runs is ever without an actor.
 * L2: of a task that this life has an actor for, its own status counts, not the manager's; of the rest, the desired state alone
 *     can still change, and only upwards.
 * L3: a task that was not started in an earlier life, as far as the disk says, waits for what its manager says is assigned:
 *     secrets and configs are not on the disk, and the disk may be an older one, as after a restored snapshot. A task that the
 *     manager knows to be farther is taken up there, so one that was started is not started again (K3 of its chart).
 */
import { planAssignments } from "../../machines/agent/agent-assignments.ts";
import {
  Task,
  TaskState,
  type AssignmentsMessage,
  type Config,
  type Secret,
  type TaskStatus,
} from "../../proto/gen/messages.ts";
import { isSubjectToken } from "../../runtime/ids.ts";
import { taskRecords, TaskActor, type TaskOptions } from "./agent-task.ts";
import type { AgentDrivers } from "./agent-drivers.ts";
import type { CallTarget } from "./agent-calls.ts";
import type { AgentPorts } from "./agent-ports.ts";
import type { LogSource } from "./agent-logs.ts";
import type { StatusReports } from "./agent-reports.ts";
import { NodeVolumes } from "./node-volumes.ts";

/**
 * An agent that is to stop everything waits so long, in milliseconds, while every task that is left has a driver that cannot be
 * asked: longer than one that hangs takes to be found out and started anew.
 */
export const unreachableMsMax = 120_000;
/** Between two looks whether that is so, in milliseconds. */
const lookMs = 1_000;

export class AgentTasks {
  readonly volumes: NodeVolumes;
  readonly #ports: AgentPorts;
  readonly #actors = new Map<string, TaskActor>();
  /** Being removed: the actor ends what still runs. A task that is assigned anew meanwhile waits for that. */
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
      /** What the node's description has to say of storage plugins has changed. */
      readonly onPlugins: () => void;
      /** A task that this agent did not have before. */
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
        telemetry.log.error({ error, record: name }, "a task's record cannot be read; the manager will assign it anew");
      }
    }
    const mayRun = ({ status }: Task): boolean => (status?.state ?? TaskState.NEW) <= TaskState.RUNNING;
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
      .gauge("muster_agent_tasks", "Tasks assigned to the node, those that have ended included.")
      .set(this.#actors.size);
  }

  /** Id and newest state of each task. */
  list(): readonly { readonly id: string; readonly state: TaskState }[] {
    const waiting = [...this.#waiting].map(([id, { status }]) => ({ id, state: status?.state ?? TaskState.ASSIGNED }));
    return [...[...this.#actors].map(([id, { state }]) => ({ id, state })), ...waiting];
  }

  /** What can be read of the output of each task, those that are being removed included. */
  sources(): readonly LogSource[] {
    const leaving = [...this.#leaving.values()].map(({ actor }) => actor);
    return [...this.#actors.values(), ...leaving].map(({ source }) => source);
  }

  /** Where a task's driver is asked to do something with it. */
  callable(taskId: string): CallTarget {
    const actor = this.#actors.get(taskId);
    return actor === undefined ? { reason: `this node does not have task ${taskId}` } : actor.callable;
  }

  /**
   * Stops and forgets every task; resolves when nothing of any is left. What has a driver that does not serve for
   * `unreachableMsMax` is left as it is: its record stays, so a later agent finds it.
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
          "tasks whose drivers do not serve are left as they are",
        );
        giveUp();
      }
    };
    clock.setTimeout(look, lookMs);
  }

  /** Ends the watching; what runs goes on and is found again. */
  stop(): void {
    for (const actor of this.#actors.values()) actor.stop();
    for (const { actor } of this.#leaving.values()) actor.stop();
    this.volumes.stop();
    this.#actors.clear();
    this.#leaving.clear();
    this.#waiting.clear();
  }

  /** L3: the first message is a whole one, so what is needed has come, or never will. */
  #resume(assigned: readonly Task[]): void {
    if (this.#waiting.size === 0) return;
    const told = new Map(assigned.map(({ id, status }) => [id, status]));
    for (const [id, task] of this.#waiting) {
      const status = farther(task.status, told.get(id) ?? null);
      if (status !== null && status !== task.status) {
        const fields = { task: id, here: task.status?.state ?? TaskState.NEW, there: status.state };
        this.#ports.telemetry.log.warn(fields, "the manager knows a later state of a task than this node's disk");
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
    // The id becomes a name on the disk.
    if (!isSubjectToken(task.id)) {
      this.#ports.telemetry.log.error({ task: task.id }, "a task with an unusable id was assigned; ignored");
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

function isUnstarted({ status }: Task): boolean {
  return (status?.state ?? TaskState.NEW) < TaskState.STARTING;
}

/** The status of the two that is farther; the node's own where neither is. */
function farther(own: TaskStatus | null, told: TaskStatus | null): TaskStatus | null {
  return (told?.state ?? TaskState.NEW) > (own?.state ?? TaskState.NEW) ? told : own;
}
