/**
 * The scheduler's own choice for tasks that do not exist: its backlog over a copy of its bookkeeping, so that what is
 * shown beforehand is what would be decided. Nothing leaves it.
 */
import { Task, TaskState, TaskStatus, type GenericResource, type VolumeAttachment } from "../../proto/gen/messages.ts";
import type { NodeSet } from "./node-set.ts";
import { Backlog } from "./place.ts";
import type { RoundLimits } from "./round.ts";

export type Placed =
  | {
      readonly kind: "placed";
      readonly nodeId: string;
      readonly generic: readonly GenericResource[];
      readonly volumes: readonly VolumeAttachment[];
    }
  /** `text`: as it would stand in the task's status. `nodes`: what single nodes say. */
  | { readonly kind: "waits"; readonly text: string; readonly nodes: readonly string[] };

/** A round of the real scheduler is cut into pieces for the sake of others; the choice is the same. */
const unlimited: RoundLimits = {
  operationsMax: Number.MAX_SAFE_INTEGER,
  retellingsMax: Number.MAX_SAFE_INTEGER,
  judgementsMax: Number.MAX_SAFE_INTEGER,
};

const pending = TaskStatus.create({ state: TaskState.PENDING });

export class WhatIf {
  readonly nodes: NodeSet;
  readonly #backlog: Backlog;
  readonly #nowMs: number;

  /** `nodes` is changed: it must be nobody else's. */
  constructor(nodes: NodeSet, nowMs: number) {
    this.nodes = nodes;
    this.#backlog = new Backlog(nodes);
    this.#nowMs = nowMs;
  }

  /** One round for all of them, which then hold what they ask for. Tasks that wait are forgotten again. By task id. */
  place(tasks: readonly Task[]): ReadonlyMap<string, Placed> {
    for (const task of tasks) this.#backlog.follow(Task.patch(task, { status: pending }));
    const placed = new Map<string, Placed>();
    for (let hasMore = true; hasMore;) {
      const round = this.#backlog.round(this.#nowMs, unlimited);
      for (const { task, nodeId, generic, volumes } of round.assignments)
        placed.set(task.id, { kind: "placed", nodeId, generic, volumes });
      hasMore = round.hasMore && round.assignments.length > 0;
    }
    for (const task of tasks) {
      if (placed.has(task.id)) continue;
      const told = this.#backlog.describe(Task.patch(task, { status: pending }));
      placed.set(task.id, { kind: "waits", text: told?.text ?? "no suitable node", nodes: told?.nodes ?? [] });
    }
    for (const task of tasks) this.#backlog.drop(task.id);
    return placed;
  }

  /** What a task holds that was placed. */
  release(taskId: string): void {
    this.nodes.release(taskId);
  }
}
