/**
 * The scheduler's choice for hypothetical tasks: its backlog runs over a copy of its bookkeeping, so that a preview shows
 * what would be decided. It has no effects.
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
  /** `text`: the error that the task's status would have. `nodes`: the verdicts of single nodes. */
  | { readonly kind: "waits"; readonly text: string; readonly nodes: readonly string[] };

/** The real scheduler splits its rounds so that they do not block others; the choice is the same. */
const unlimited: RoundLimits = {
  operationsMax: Number.MAX_SAFE_INTEGER,
  replacementsMax: Number.MAX_SAFE_INTEGER,
  judgementsMax: Number.MAX_SAFE_INTEGER,
};

const pending = TaskStatus.create({ state: TaskState.PENDING });

export class WhatIf {
  readonly nodes: NodeSet;
  readonly #backlog: Backlog;
  readonly #nowMs: number;

  /** `nodes` is modified: it must not be shared. */
  constructor(nodes: NodeSet, nowMs: number) {
    this.nodes = nodes;
    this.#backlog = new Backlog(nodes);
    this.#nowMs = nowMs;
  }

  /** Places all tasks; those placed are charged, the others are dropped. Returns the results by task id. */
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
      const waiting = this.#backlog.describe(Task.patch(task, { status: pending }));
      placed.set(task.id, { kind: "waits", text: waiting?.text ?? "no suitable node", nodes: waiting?.nodes ?? [] });
    }
    for (const task of tasks) this.#backlog.drop(task.id);
    return placed;
  }

  /** Releases what a placed task holds. */
  release(taskId: string): void {
    this.nodes.release(taskId);
  }
}
