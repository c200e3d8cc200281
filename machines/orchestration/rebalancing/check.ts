/**
 * The check of rebalancing: follows the cluster's changes, and finds what holds all moves, or else the moves of one round. The
 * holds have an order: an incident, moves of the last round, a cluster that has not settled, a used-up budget; then each
 * service is judged (`service.ts`), and the moves of those that may move are planned (`round.ts`).
 */
import { type Node, type Service, type Task } from "../../../proto/gen/messages.ts";
import type { LogTimes } from "../../elapsed.ts";
import { msUntil } from "../../reconcile.ts";
import type { WhatIf } from "../../scheduling/what-if.ts";
import { isReady } from "../../node.ts";
import { isEnded, isWanted, observedState } from "../../task.ts";
import type { RebalancePhase } from "../rebalance.machine.ts";
import type { NodeOf } from "../restart.machine.ts";
import { TaskDirty } from "../task-dirty.ts";
import { incidentOf, lastNodeChangeMs, settlingOf, type ClusterView, type Hold } from "./hold.ts";
import { areSettling, movedFrom, openMove, spentMoves, steadyLoads } from "./moves.ts";
import { planRound, type Candidate, type RoundMove } from "./round.ts";
import { judgeService, type ServiceVerdict } from "./service.ts";
import { isRebalanced, rebalanceLabels, type RebalanceSettings } from "./settings.ts";

/** Fallback interval of checks, in milliseconds. */
const idleLookMs = 3_600_000;
/** A balanced service may become unbalanced when others change; it is checked again after this time, in milliseconds. */
const staleLookMs = 60_000;

/** The cluster, as far as rebalancing depends on it. */
interface RebalanceWorld {
  readonly times: LogTimes;
  /** After this time, in milliseconds, a manager's report about missing nodes is outdated. */
  readonly doubtMs: number;
  readonly nodeOf: NodeOf;
  nodes(): Iterable<Node>;
  services(): Iterable<Service>;
  service(id: string): Service | undefined;
  tasks(): Iterable<Task>;
  task(id: string): Task | undefined;
  tasksOf(serviceId: string): Iterable<Task>;
  /** For trying moves. */
  whatIf(nowMs: number): WhatIf;
}

/** The result of a check; moves come with the phase `watching`. */
interface Check {
  readonly phase: RebalancePhase;
  /** Milliseconds until the next check; -1: not before a change. */
  readonly nextMs: number;
  readonly moves: readonly RoundMove[];
}

/** The obstacles to moves that a dry run shows. */
interface Blocks {
  /** Null: moves are allowed. */
  readonly now: Hold | null;
  readonly spent: { readonly spent: number; readonly untilMs: number | null };
}

export class RebalanceCheck {
  readonly #world: RebalanceWorld;
  readonly #taskDirties = new Map<string, TaskDirty>();
  /** Services with rebalancing enabled. */
  readonly #enabled = new Set<string>();
  /** Those of them that could not be placed better at their last check. */
  readonly #balanced = new Set<string>();
  readonly #holds = new Map<string, Hold>();
  /** When moves were made, by the id of the created task (R5); kept for the window. */
  readonly #madeMs = new Map<string, number>();
  /** Ids of tasks created by moves that have not completed. */
  readonly #open = new Set<string>();
  #settings: RebalanceSettings;
  #troubleMs: number;
  #hold: Hold | null = null;
  #lookedAtAllMs = 0;
  /** Whether other services have changed since then. */
  #isStale = false;

  constructor(world: RebalanceWorld, settings: RebalanceSettings) {
    this.#world = world;
    this.#settings = settings;
    this.#troubleMs = lastNodeChangeMs(world.nodes(), world.times);
    for (const service of world.services()) this.#note(service);
    for (const task of world.tasks()) this.#noteTask(task);
  }

  get settings(): RebalanceSettings {
    return this.#settings;
  }

  /** Ids of the services with rebalancing enabled. */
  get enabled(): ReadonlySet<string> {
    return this.#enabled;
  }

  /** Whether there is anything to check. */
  get isOn(): boolean {
    return this.#enabled.size > 0 || this.#open.size > 0;
  }

  followSettings(settings: RebalanceSettings): void {
    this.#settings = settings;
    for (const service of this.#world.services()) this.#note(service);
  }

  followService(old: Service | null, service: Service | null): void {
    if (service !== null) this.#note(service);
    else if (old !== null) {
      this.#balanced.delete(old.id);
      this.#disable(old.id);
    }
  }

  /** Whether the change calls for a check. */
  followTask(old: Task | null, task: Task | null): boolean {
    const some = (task ?? old) as Task;
    if (task !== null) this.#noteTask(task);
    const matters = old === null || task === null || old.nodeId !== task.nodeId || isWanted(old) !== isWanted(task);
    if (this.#enabled.has(some.serviceId)) {
      this.#balanced.delete(some.serviceId);
      if (matters) this.#isStale = true;
      return true;
    }
    if ((this.#isStale || !matters) && !this.#open.has(some.id)) return false;
    this.#isStale = true;
    return true;
  }

  followNode(old: Node | null, node: Node | null, nowMs: number): void {
    const wasReady = isReady(old);
    const isNowReady = isReady(node);
    if (old !== null && wasReady !== isNowReady && (old.description !== null || node === null)) this.#troubleMs = nowMs;
    this.#balanced.clear();
  }

  /** An incident that is over by the time of the check still counts (R1). */
  noteTrouble(nowMs: number): void {
    this.#troubleMs = nowMs;
    this.#balanced.clear();
  }

  /** `doubts`: managers' current reports about missing nodes, as sentences. */
  check(nowMs: number, doubts: readonly string[]): Check {
    const held = (phase: RebalancePhase, hold: Hold): Check => {
      this.#hold = hold;
      return { phase, nextMs: untilNext(hold.untilMs, nowMs), moves: [] };
    };
    this.#hold = null;
    if (!this.isOn) return { phase: "off", nextMs: -1, moves: [] };
    const view = this.#view(nowMs, doubts);
    const incident = incidentOf(view, this.#settings);
    if (incident !== null) {
      const check = held("paused", incident);
      // The manager stops reporting when it has nothing more to report.
      return doubts.length === 0 ? check : { ...check, nextMs: this.#world.doubtMs };
    }
    const open = this.#openRound(nowMs);
    if (open !== null) return held("watchingMoves", open);
    const settling = settlingOf(view, this.#settings);
    if (settling !== null) return held("settling", settling);
    const { roundMovesMax, windowMovesMax, windowMs } = this.#settings;
    for (const [id, time] of this.#madeMs) if (time + windowMs <= nowMs) this.#madeMs.delete(id);
    const { spent, untilMs } = spentMoves(this.#madeMs.values(), this.#settings, nowMs);
    const budget = Math.min(roundMovesMax, windowMovesMax - spent);
    if (budget <= 0) {
      return held(
        "watching",
        roundMovesMax === 0
          ? { reason: `the cluster's label ${rebalanceLabels.round} allows no moves per round`, untilMs: null }
          : { reason: `the budget of ${windowMovesMax} moves is used up`, untilMs },
      );
    }
    const { moves, againMs } = this.#checkServices(nowMs, budget);
    return { phase: "watching", nextMs: untilNext(againMs, nowMs), moves };
  }

  /** The reason that holds the service's moves, or null; undefined if rebalancing does not concern it. */
  holdOf(service: Service): Hold | null | undefined {
    const isMoving = [...this.#open].some((id) => this.#world.task(id)?.serviceId === service.id);
    if (!this.#enabled.has(service.id) && !isMoving) return undefined;
    return this.#hold ?? this.#holds.get(service.id) ?? null;
  }

  blocks(nowMs: number, doubts: readonly string[]): Blocks {
    const view = this.#view(nowMs, doubts);
    return {
      now: incidentOf(view, this.#settings) ?? this.#openRound(nowMs) ?? settlingOf(view, this.#settings),
      spent: spentMoves(this.#madeMs.values(), this.#settings, nowMs),
    };
  }

  judge(service: Service, nowMs: number): ServiceVerdict {
    const { nodeOf, tasksOf, times } = this.#world;
    return judgeService(service, tasksOf(service.id), this.#settings, nowMs, {
      nodeOf,
      isDirty: (task) => this.#isDirty(task, service),
      times,
    });
  }

  #view(nowMs: number, doubts: readonly string[]): ClusterView {
    const { nodes, times } = this.#world;
    return { nowMs, times, nodes: [...nodes()], troubleMs: this.#troubleMs, doubts };
  }

  #note(service: Service): void {
    this.#balanced.delete(service.id);
    if (service.spec?.replicated != null && isRebalanced(service, this.#settings)) this.#enabled.add(service.id);
    else this.#disable(service.id);
  }

  #disable(serviceId: string): void {
    this.#enabled.delete(serviceId);
    this.#holds.delete(serviceId);
    this.#taskDirties.delete(serviceId);
  }

  #noteTask(task: Task): void {
    if (movedFrom(task) === "") return;
    if (!this.#madeMs.has(task.id)) this.#madeMs.set(task.id, this.#world.times.madeMs(task));
    if (isWanted(task) && !isEnded(observedState(task))) this.#open.add(task.id);
  }

  #isDirty(task: Task, service: Service): boolean {
    let taskDirty = this.#taskDirties.get(service.id);
    if (taskDirty === undefined) this.#taskDirties.set(service.id, (taskDirty = new TaskDirty()));
    return taskDirty.isDirty(task, service, this.#world.nodeOf);
  }

  /** R4: the reason why the moves of the last round are waiting; null if none is. */
  #openRound(nowMs: number): Hold | null {
    const { service: serviceOf, task: taskOf, times } = this.#world;
    let waits: Hold | null = null;
    for (const id of this.#open) {
      const task = taskOf(id);
      const service = task === undefined ? undefined : serviceOf(task.serviceId);
      const before = task === undefined ? undefined : taskOf(movedFrom(task));
      const wait = openMove(task, before, service, nowMs, times);
      if (wait === null) this.#open.delete(id);
      else if (waits === null || (wait.untilMs ?? 0) < (waits.untilMs ?? 0)) waits = wait;
    }
    return waits;
  }

  /** Finds the moves of a round, and when to check again if there are none. */
  #checkServices(
    nowMs: number,
    budget: number,
  ): { readonly moves: readonly RoundMove[]; readonly againMs: number | null } {
    const { times } = this.#world;
    if (this.#isStale && nowMs - this.#lookedAtAllMs >= staleLookMs) this.#balanced.clear();
    if (this.#balanced.size === 0) {
      // Tasks of other services that are not steady yet count once they are.
      this.#isStale = areSettling(this.#world.tasks(), this.#settings, nowMs, times);
      this.#lookedAtAllMs = nowMs;
    }
    let againMs: number | null = this.#isStale ? this.#lookedAtAllMs + staleLookMs : null;
    const sooner = (untilMs: number | null): void => {
      if (untilMs !== null && (againMs === null || untilMs < againMs)) againMs = untilMs;
    };
    const candidates: Candidate[] = [];
    const young: string[] = [];
    for (const id of this.#enabled) {
      if (this.#balanced.has(id)) continue;
      const service = this.#world.service(id);
      if (service === undefined) continue;
      const verdict = this.judge(service, nowMs);
      if (verdict.kind === "held") {
        this.#holds.set(id, verdict.hold);
        sooner(verdict.hold.untilMs);
        continue;
      }
      this.#holds.delete(id);
      sooner(verdict.youngUntilMs);
      if (verdict.youngUntilMs !== null) {
        young.push(id);
        this.#holds.set(id, { reason: "some of its tasks have not run for long", untilMs: verdict.youngUntilMs });
      }
      candidates.push({ service, tasks: verdict.tasks });
    }
    if (candidates.length === 0) return { moves: [], againMs };
    const moves = planRound(
      candidates,
      budget,
      this.#world.whatIf(nowMs),
      steadyLoads(this.#world.tasks(), this.#settings, nowMs, times),
    );
    // If the round has moves, the others were checked as if these had been made.
    if (moves.length === 0) for (const { service } of candidates) this.#balanced.add(service.id);
    for (const id of young) this.#balanced.delete(id);
    return { moves, againMs };
  }
}

function untilNext(untilMs: number | null, nowMs: number): number {
  return untilMs === null ? idleLookMs : Math.min(idleLookMs, msUntil(untilMs, nowMs));
}
