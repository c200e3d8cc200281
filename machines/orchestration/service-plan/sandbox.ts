/**
 * Simulates a service's tasks: applies decisions at once, to copies, in the order in which they would happen, and assumes that
 * every node follows its assignments.
 *
 * P1: new tasks get nodes while their predecessors still hold theirs; tasks that wait then are tried again when all
 *     predecessors have stopped. Real nodes differ in speed, so for simultaneous changes the plan predicts how many tasks run,
 *     but not always where.
 * P2: the scheduler's own code chooses nodes (WhatIf).
 */
import {
  NetworkAttachment,
  Task,
  TaskState,
  TaskStatus,
  type Network,
  type Node,
  type Service,
} from "../../../proto/gen/messages.ts";
import { needsIngress, networksOf } from "../../allocation/endpoint.ts";
import { slotName } from "../rollout/slot.ts";
import { demandOf, judge, Verdict } from "../../scheduling/filters.ts";
import type { Placed, WhatIf } from "../../scheduling/what-if.ts";
import { timestampOf } from "../../../proto/time.ts";
import { mayDesire } from "../../task.machine.ts";
import { isReady } from "../../node.ts";
import { isEnded, isHeld, isRunning, isWanted, observedState } from "../../task.ts";

export interface Choice {
  readonly placed: Placed;
  /** Why this node, in one sentence; empty for a waiting task. */
  readonly why: string;
}

interface SandboxWorld {
  readonly whatIf: WhatIf;
  readonly nodeOf: (id: string) => Node | undefined;
  readonly networkOf: (id: string) => Network | undefined;
  readonly ingress: () => Network | undefined;
}

const nothing: readonly never[] = Object.freeze([]);

export class Sandbox {
  /** By id, oldest first. */
  readonly #tasks = new Map<string, Task>();
  /** Task ids by place: a slot's number or a node's id. */
  readonly #places = new Map<string, string[]>();
  /** Ids of tasks that have not reached their desired state. */
  readonly #unsettled = new Set<string>();
  readonly #service: Service;
  readonly #world: SandboxWorld;
  readonly #choices = new Map<string, Choice>();
  readonly #onChange: (old: Task | null, task: Task | null) => void;
  #made = 0;

  /** `tasks`: the service's current tasks; `service`: its future version. */
  constructor(
    service: Service,
    tasks: Iterable<Task>,
    world: SandboxWorld,
    onChange: (old: Task | null, task: Task | null) => void = () => undefined,
  ) {
    for (const task of tasks) this.#keep(task);
    this.#service = service;
    this.#world = world;
    this.#onChange = onChange;
  }

  get tasks(): Iterable<Task> {
    return this.#tasks.values();
  }

  get(id: string): Task | undefined {
    return this.#tasks.get(id);
  }

  /** Tasks of one slot, or of one node for a global service, oldest first. */
  at(place: string): readonly Task[] {
    return (this.#places.get(place) ?? []).map((id) => this.#tasks.get(id) as Task);
  }

  /** Where the task was placed, or why it waits; undefined: it had its node before. */
  choiceOf(id: string): Choice | undefined {
    return this.#choices.get(id);
  }

  *waiting(): Iterable<Task> {
    for (const task of this.#toSettle()) if (isWanted(task) && observedState(task) < TaskState.ASSIGNED) yield task;
  }

  newId(): string {
    this.#made += 1;
    return `planned-${this.#made}`;
  }

  desire(id: string, state: TaskState): void {
    const task = this.#tasks.get(id);
    if (task === undefined || !mayDesire(task.desiredState, state)) return;
    this.#put(Task.patch(task, { desiredState: state }));
  }

  add(task: Task): void {
    const targets = networksOf(task.spec?.networks ?? nothing, this.#service);
    const networks = targets.map(({ target }) =>
      NetworkAttachment.create({ network: this.#world.networkOf(target) ?? null }),
    );
    // As the allocator does.
    if (needsIngress(this.#service))
      networks.unshift(NetworkAttachment.create({ network: this.#world.ingress() ?? null }));
    this.#put(Task.patch(task, { networks, status: TaskStatus.create({ state: TaskState.PENDING }) }));
  }

  /** Carries out all pending changes (P1). */
  settle(nowMs: number): void {
    this.#place();
    this.#stop(nowMs);
    this.#place();
    this.#run(nowMs);
  }

  #place(): void {
    const waiting = [...this.waiting()];
    if (waiting.length === 0) return;
    const reasons = new Reasons(waiting, this.#world.whatIf);
    for (const [id, placed] of this.#world.whatIf.place(waiting)) {
      const task = this.#tasks.get(id) as Task;
      if (placed.kind === "waits") {
        this.#choices.set(id, { placed, why: "" });
        continue;
      }
      this.#choices.set(id, { placed, why: reasons.of(task, placed.nodeId) });
      // With its resources, which would otherwise be free for the next task.
      const { generic, nodeId, volumes } = placed;
      const status = TaskStatus.create({ state: TaskState.ASSIGNED });
      this.#put(Task.patch(task, { nodeId, assignedGenericResources: generic, volumes, status }));
    }
  }

  #stop(nowMs: number): void {
    for (const task of this.#toSettle()) {
      if (isWanted(task)) continue;
      const state = observedState(task);
      if (isHeld(state) ? !this.#answers(task) : isEnded(state)) continue;
      this.#put(Task.patch(task, { status: statusOf(TaskState.SHUTDOWN, nowMs) }));
    }
  }

  #run(nowMs: number): void {
    for (const task of this.#toSettle()) {
      if (!isWanted(task) || !isHeld(observedState(task)) || !this.#answers(task)) continue;
      if (isRunning(task) && task.desiredState === TaskState.RUNNING) continue;
      const desiredState = task.desiredState === TaskState.READY ? TaskState.RUNNING : task.desiredState;
      this.#put(Task.patch(task, { desiredState, status: statusOf(TaskState.RUNNING, nowMs) }));
    }
  }

  #toSettle(): readonly Task[] {
    return Array.from(this.#unsettled, (id) => this.#tasks.get(id) as Task);
  }

  #keep(task: Task): void {
    if (!this.#tasks.has(task.id)) {
      const place = slotName(task);
      const known = this.#places.get(place);
      if (known === undefined) this.#places.set(place, [task.id]);
      else known.push(task.id);
    }
    this.#tasks.set(task.id, task);
    const state = observedState(task);
    const isSettled = isWanted(task)
      ? state === TaskState.RUNNING && task.desiredState === TaskState.RUNNING
      : isEnded(state);
    if (isSettled) this.#unsettled.delete(task.id);
    else this.#unsettled.add(task.id);
  }

  #answers(task: Task): boolean {
    return isReady(this.#world.nodeOf(task.nodeId));
  }

  #put(task: Task): void {
    const old = this.#tasks.get(task.id) ?? null;
    this.#keep(task);
    this.#world.whatIf.nodes.follow(task);
    this.#onChange(old, task);
  }
}

function statusOf(state: TaskState, nowMs: number): TaskStatus {
  const at = timestampOf(nowMs);
  return TaskStatus.create({ state, timestamp: at, appliedAt: at });
}

/** The nodes' task counts during one round. */
class Reasons {
  readonly #own = new Map<string, number>();
  readonly #all = new Map<string, number>();
  readonly #whatIf: WhatIf;
  readonly #fitting: number;
  readonly #nodes: number;

  constructor(tasks: readonly Task[], whatIf: WhatIf) {
    this.#whatIf = whatIf;
    const demand = demandOf(tasks[0] as Task);
    const { nodes } = whatIf.nodes;
    this.#nodes = nodes.length;
    let fitting = 0;
    for (const info of nodes) {
      if (judge(demand, info) === Verdict.fits) fitting += 1;
      this.#own.set(info.id, info.activeOf(demand.serviceId));
      this.#all.set(info.id, info.activeTasks);
    }
    this.#fitting = fitting;
  }

  of(task: Task, nodeId: string): string {
    const name = this.#whatIf.nodes.nameOf(nodeId);
    if (task.nodeId !== "") return `${name}: the task is created for this node`;
    const [own, all] = [this.#own.get(nodeId) ?? 0, this.#all.get(nodeId) ?? 0];
    this.#own.set(nodeId, own + 1);
    this.#all.set(nodeId, all + 1);
    const nodes = this.#nodes === 1 ? "the only node" : `${this.#fitting} of ${this.#nodes} nodes`;
    return `${name}: had ${own} of its tasks and ${all} in all; ${nodes} could run it`;
  }
}
