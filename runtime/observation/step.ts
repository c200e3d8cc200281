/** Steps and actors as an observer of a host sees them (`Host.observe`). Objects of a step never change, so an observer may keep them. */
import type { AnyStateMachine } from "xstate";
import type { Cause } from "./cause.ts";

/** An `after`, or a delayed event, that waits. */
export interface ObservedTimer {
  /** The delay's name, or its milliseconds. */
  readonly delay: string;
  /** Path of the state that armed it; empty: the root. */
  readonly state: string;
  /** Whole milliseconds since the epoch. */
  readonly armedAtMs: number;
  readonly dueAtMs: number;
}

export type ObservedStatus = "active" | "done" | "stopped" | "error";

export interface ObservedActor {
  /** Such as `session/n1`. */
  readonly id: string;
  readonly machine: AnyStateMachine;
  readonly startedAtMs: number;
  /** When it entered these states; 0: before somebody observed. */
  readonly sinceMs: number;
  /** Number of its steps since somebody observes. */
  readonly steps: number;
  /** Type of the newest event that it expected; empty if unknown. */
  readonly lastEvent: string;
  /** Paths of all active atomic states, sorted. The same states are the same array. */
  readonly states: readonly string[];
  readonly status: ObservedStatus;
  readonly context: object;
  readonly timers: readonly ObservedTimer[];
}

/** An event and what it did; the actor is as it was just afterwards. */
export interface ObservedStep extends ObservedActor {
  readonly atMs: number;
  readonly event: { readonly type: string };
  /** Null in its first step. */
  readonly contextBefore: object | null;
  /** Ids of the transitions taken, in order (`transition-ids.ts`). */
  readonly transitions: readonly string[];
  /** Names of the guards of these transitions. */
  readonly guards: readonly string[];
  /** Names of the effects and actions, in order. */
  readonly effects: readonly string[];
  /** No state expected the event. */
  readonly unexpected: boolean;
  /** Id of the actor in whose step the event was sent; empty: it came from outside. */
  readonly source: string;
  /** Cause of the work in which the event was sent. */
  readonly cause: Cause;
}

/** Its status is other than `active` in an actor's last step. */
export type StepObserver = (step: ObservedStep) => void;
