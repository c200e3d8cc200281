/**
 * A dry run of creating or changing a service: the decisions of its orchestrator, its rollout and the scheduler, applied to
 * copies of its tasks (machines/orchestration/service-plan/sandbox.ts). Nothing is written. The plan is made by the same
 * functions as the real decisions, and holds as long as every node follows its assignments and nothing else changes.
 */
import { TaskState, type Cluster, type Network, type Node, type Service, type Task } from "../../proto/gen/messages.ts";
import { decideJob } from "./jobs/decide.ts";
import { decideNodes, placesOf } from "./global-nodes.ts";
import { newTask, taskTemplate, type TaskTemplate } from "./new-task.ts";
import { hasRollbackStatus } from "./rollout/status.ts";
import { settingsOf } from "./rollout/settings.ts";
import { slotName } from "./rollout/slot.ts";
import { RolloutTracker } from "./rollout/tracker.ts";
import { noTurns, type Turns } from "./rollout/turns.ts";
import type { WhatIf } from "../scheduling/what-if.ts";
import { Sandbox, type Choice } from "./service-plan/sandbox.ts";
import { specChanges } from "./service-plan/spec-changes.ts";
import { timestampOf } from "../../proto/time.ts";
import { stampedTimes } from "../elapsed.ts";
import { decideService, decideSlots, groupBySlot, type World } from "./slots.ts";
import { TaskDirty } from "./task-dirty.ts";
import { isHeld, isWanted, observedState } from "../task.ts";
import { isJob, modeOf } from "./service-mode.ts";

interface PlanWorld {
  readonly nowMs: number;
  /** The scheduler's view of the current cluster; modified by the plan. */
  readonly whatIf: WhatIf;
  readonly nodes: () => Iterable<Node>;
  readonly nodeOf: (id: string) => Node | undefined;
  readonly networkOf: (id: string) => Network | undefined;
  readonly ingress: () => Network | undefined;
  readonly cluster: Cluster | undefined;
  /** Tasks of the service, oldest first. */
  readonly tasks: readonly Task[];
}

export interface PlanStep {
  readonly kind: "create" | "replace" | "remove";
  readonly slot: number;
  /** 0: at once; batches of the rollout from 1. */
  readonly batch: number;
  /** The task that would end; null for `create`. */
  readonly task: Task | null;
  /** The new task's node; empty: it would wait, or there is no new task. */
  readonly nodeId: string;
  readonly reasons: readonly string[];
}

interface PlanWait {
  readonly tasks: number;
  readonly text: string;
  readonly nodes: readonly string[];
}

export interface ServicePlan {
  readonly steps: readonly PlanStep[];
  /** By node id: wanted tasks of the service before and after. */
  readonly nodes: ReadonlyMap<string, { readonly before: number; readonly after: number }>;
  readonly waits: readonly PlanWait[];
  readonly notes: readonly string[];
  /** Number of wanted tasks that stay unchanged. */
  readonly kept: number;
}

/** Limits of a simulated rollout (about 150 µs per task), since a plan blocks everything else. The rest is only counted. */
const batchesMax = 500;
const replacedMax = 2_000;

type AnyStep =
  | { readonly kind: "desire"; readonly task: Task; readonly state: TaskState }
  | { readonly kind: "create"; readonly place: string; readonly desired: TaskState };

interface Draft {
  readonly kind: "create" | "replace" | "remove";
  readonly slot: number;
  readonly batch: number;
  readonly task: Task | null;
  readonly newId: string;
}

/** `before`: null for a service that does not exist yet. `after`: as it would be stored. */
export function planService(before: Service | null, after: Service, world: PlanWorld): ServicePlan {
  return new Planner(before, after, world).plan();
}

class Planner {
  readonly #before: Service | null;
  readonly #after: Service;
  readonly #world: PlanWorld;
  readonly #sandbox: Sandbox;
  readonly #template: TaskTemplate;
  readonly #taskDirty = new TaskDirty();
  readonly #stored: ReadonlySet<string>;
  readonly #drafts: Draft[] = [];
  /** Ids of tasks that a draft ends. */
  readonly #ending = new Set<string>();
  readonly #notes: string[] = [];
  #tracker: RolloutTracker | null = null;
  #nowMs: number;

  constructor(before: Service | null, after: Service, world: PlanWorld) {
    this.#before = before;
    this.#after = after;
    this.#world = world;
    this.#nowMs = world.nowMs;
    this.#stored = new Set(world.tasks.map(({ id }) => id));
    this.#template = taskTemplate(after, world.cluster, timestampOf(world.nowMs));
    this.#sandbox = new Sandbox(after, world.tasks, world, (old, task) => void this.#tracker?.note(old, task));
  }

  plan(): ServicePlan {
    this.#atOnce();
    this.#sandbox.settle(this.#nowMs);
    if (!isJob(this.#after.spec)) this.#rollOut();
    return {
      steps: this.#drafts.map((draft) => this.#explained(draft)),
      nodes: this.#byNode(),
      waits: this.#waits(),
      notes: this.#notes,
      kept: this.#kept(),
    };
  }

  /** Changes without a rollout: scaling, missing tasks, and tasks that cannot continue. */
  #atOnce(): void {
    const isPartial = isJob(this.#after.spec) ? this.#job() : this.#decide(null, noTurns, 0);
    if (isPartial) this.#notes.push("this is only the first part of the plan; more decisions follow");
  }

  #job(): boolean {
    const { nodeOf, nodes } = this.#world;
    const decision = decideJob(this.#after, this.#sandbox.tasks, {
      nowMs: this.#nowMs,
      nodeOf,
      nodes,
      times: stampedTimes,
    });
    const steps = decision.steps.map((step): AnyStep =>
      step.kind === "desire"
        ? step
        : { kind: "create", place: step.place.nodeId || String(step.place.slot), desired: step.desired },
    );
    this.#apply(steps, 0);
    const job = this.#after.spec?.replicatedJob ?? null;
    if (job !== null && job.totalCompletions > job.maxConcurrent && job.maxConcurrent > 0) {
      this.#notes.push(
        `${job.maxConcurrent} tasks run at once; as they complete, others follow up to ${job.totalCompletions}`,
      );
    }
    if (decision.phase !== "working") this.#notes.push(`the job is ${decision.phase}`);
    return decision.isPartial;
  }

  /** `slots`: the slots to decide; null: all. Returns whether there is more to decide. */
  #decide(slots: readonly string[] | null, turns: Turns, batch: number): boolean {
    const world: World = {
      nowMs: this.#nowMs,
      nodeOf: this.#world.nodeOf,
      taskDirty: this.#taskDirty,
      turns,
      times: stampedTimes,
    };
    if (modeOf(this.#after.spec) === "global") {
      const places =
        slots === null
          ? placesOf(this.#world.nodes(), this.#sandbox.tasks)
          : new Map(slots.map((slot) => [slot, this.#sandbox.at(slot)]));
      const decision = decideNodes(this.#after, places, world);
      this.#apply(
        decision.steps.map((step) => (step.kind === "desire" ? step : { ...step, place: step.slot })),
        batch,
      );
      return decision.isPartial;
    }
    const replicas = this.#after.spec?.replicated?.replicas ?? 0;
    const decision =
      slots === null
        ? decideService(this.#after, groupBySlot(this.#sandbox.tasks), replicas, world)
        : decideSlots(this.#after, new Map(slots.map((slot) => [Number(slot), this.#sandbox.at(slot)])), world);
    this.#apply(
      decision.steps.map((step) => (step.kind === "desire" ? step : { ...step, place: String(step.slot) })),
      batch,
    );
    return decision.isPartial;
  }

  #apply(steps: readonly AnyStep[], batch: number): void {
    const ended = new Map<string, Task>();
    for (const step of steps) {
      if (step.kind === "desire") {
        const { task, state } = step;
        // Tasks that are over already, or only history, are not shown.
        if (isWanted(task) && state >= TaskState.SHUTDOWN) ended.set(slotName(task), task);
        this.#sandbox.desire(task.id, state);
        continue;
      }
      const task = ended.get(step.place) ?? this.#beside(step.place);
      ended.delete(step.place);
      const isNode = modeOf(this.#after.spec) === "global" || this.#after.spec?.globalJob != null;
      const slot = isNode ? 0 : Number(step.place);
      const made = newTask(this.#template, this.#sandbox.newId(), slot, step.desired, isNode ? step.place : "");
      this.#sandbox.add(made);
      if (task !== null) this.#ending.add(task.id);
      this.#drafts.push({ kind: task === null ? "create" : "replace", slot, batch, task, newId: made.id });
    }
    for (const task of ended.values()) {
      if (this.#ending.has(task.id) || this.#isPlanned(task)) continue;
      this.#ending.add(task.id);
      this.#drafts.push({ kind: "remove", slot: task.slot, batch, task, newId: "" });
    }
  }

  /** Start-first: the task that the new one will replace. */
  #beside(place: string): Task | null {
    return this.#sandbox.at(place).find((task) => isWanted(task) && !this.#isPlanned(task)) ?? null;
  }

  #isPlanned(task: Task): boolean {
    return !this.#stored.has(task.id);
  }

  #rollOut(): void {
    const { nodeOf } = this.#world;
    const service = this.#after;
    const tracker = new RolloutTracker(
      {
        service,
        settings: settingsOf(service, hasRollbackStatus(service)),
        record: null,
        taskDirty: this.#taskDirty,
        nodeOf,
        times: stampedTimes,
        tasksAt: (slot, nodeId) => this.#sandbox.at(slot === 0 ? nodeId : String(slot)),
      },
      this.#sandbox.tasks,
      this.#nowMs,
    );
    if (tracker.outdated === 0) return;
    this.#tracker = tracker;
    const { isStartFirst } = settingsOf(service, hasRollbackStatus(service));
    const turns: Turns = { mayReplace: (slot) => tracker.mayReplace(slot), isStartFirst, isHeld: false };
    let batch = 0;
    for (let looks = 0; looks < 4 * batchesMax && !this.#isEnough(batch); looks += 1) {
      const verdict = tracker.look(this.#nowMs, { kind: "all" });
      const slots = tracker.takeTurns();
      if (slots.length > 0) {
        const before = this.#drafts.length;
        this.#decide(slots, turns, batch + 1);
        if (this.#drafts.length > before) batch += 1;
        this.#sandbox.settle(this.#nowMs);
        continue;
      }
      if (verdict.kind === "delayed" && verdict.nextMs >= 0) {
        this.#nowMs += verdict.nextMs;
        continue;
      }
      if (verdict.kind === "busy") this.#notes.push("the update stops at tasks that wait for a node");
      else if (verdict.kind === "failed" || verdict.kind === "expired") {
        this.#notes.push(`the update would pause${verdict.why}`);
      }
      break;
    }
    if (tracker.outdated > 0 && this.#isEnough(batch)) {
      this.#notes.push(
        `${tracker.outdated} more tasks would be updated in the same way; the plan shows the state before that`,
      );
    }
  }

  #isEnough(batch: number): boolean {
    return batch >= batchesMax || (batch > 0 && this.#drafts.length >= replacedMax);
  }

  #explained({ kind, slot, batch, task, newId }: Draft): PlanStep {
    const choice = newId === "" ? undefined : this.#sandbox.choiceOf(newId);
    const reasons = [this.#cause(kind, batch, task), whereOf(choice)].filter((reason) => reason !== "");
    const nodeId = choice?.placed.kind === "placed" ? choice.placed.nodeId : "";
    return { kind, slot, batch, task, nodeId, reasons };
  }

  #cause(kind: Draft["kind"], batch: number, task: Task | null): string {
    const { spec } = this.#after;
    if (kind === "remove") {
      const from = this.#before?.spec?.replicated?.replicas ?? 0;
      const to = spec?.replicated?.replicas ?? 0;
      return spec?.replicated != null && to < from ? `scaled down from ${from} to ${to}` : "no longer needed there";
    }
    if (kind === "create") {
      if (this.#before === null) return "the service is new";
      const from = this.#before.spec?.replicated?.replicas ?? 0;
      const to = spec?.replicated?.replicas ?? 0;
      return spec?.replicated != null && to > from ? `scaled up from ${from} to ${to}` : "no task runs there yet";
    }
    if (batch === 0) return "the task there cannot continue";
    const changes = task === null ? [] : specChanges(task, this.#after);
    return changes.length === 0 ? "its spec has changed" : `changed: ${changes.join(", ")}`;
  }

  #byNode(): ReadonlyMap<string, { readonly before: number; readonly after: number }> {
    const nodes = new Map<string, { before: number; after: number }>();
    const at = (nodeId: string): { before: number; after: number } => {
      let counts = nodes.get(nodeId);
      if (counts === undefined) nodes.set(nodeId, (counts = { before: 0, after: 0 }));
      return counts;
    };
    for (const task of this.#world.tasks) {
      if (isWanted(task) && isHeld(observedState(task))) at(task.nodeId).before += 1;
    }
    for (const task of this.#sandbox.tasks) {
      if (isWanted(task) && isHeld(observedState(task))) at(task.nodeId).after += 1;
    }
    return nodes;
  }

  #waits(): readonly PlanWait[] {
    const waits = new Map<string, { tasks: number; readonly nodes: readonly string[] }>();
    for (const { id } of this.#sandbox.waiting()) {
      const placed = this.#sandbox.choiceOf(id)?.placed;
      if (placed?.kind !== "waits") continue;
      const known = waits.get(placed.text);
      if (known === undefined) waits.set(placed.text, { tasks: 1, nodes: placed.nodes });
      else known.tasks += 1;
    }
    return Array.from(waits, ([text, { tasks, nodes }]) => ({ tasks, text, nodes }));
  }

  #kept(): number {
    let kept = 0;
    for (const { id } of this.#world.tasks) {
      const task = this.#sandbox.get(id);
      if (task !== undefined && isWanted(task)) kept += 1;
    }
    return kept;
  }
}

function whereOf(choice: Choice | undefined): string {
  if (choice === undefined) return "";
  return choice.placed.kind === "placed" ? choice.why : choice.placed.text;
}
