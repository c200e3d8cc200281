/**
 * The tasks that wait for a node, and the choice of nodes for them.
 *
 * Tasks of one service and spec version form a group: its demand is worked out once and all nodes are judged once for
 * it. A group that no node takes keeps their verdicts, and only nodes that changed are judged again.
 *
 * B1: a task waits here, or is decided, never both: whoever decides it takes it out.
 * B2: an explanation goes out only when it differs from what the task's status says or was last told to say.
 * B3: a decision is charged to its node at once, so the next one sees it.
 */
import { TaskState, type GenericResource, type PlacementPreference, type Task } from "../../proto/gen/messages.ts";
import { describeVerdict, Tally, verdictText } from "./explain.ts";
import { demandOf, judge, judgeRoom, Verdict, type Demand } from "./filters.ts";
import { groupKey, type NodeInfo, type NodeSet } from "./node-set.ts";
import { poolOf } from "./spread.ts";

export interface Assignment {
  readonly task: Task;
  readonly nodeId: string;
  readonly generic: readonly GenericResource[];
  /** The task was made for that node. */
  readonly isPreassigned: boolean;
}

export interface Explanation {
  readonly task: Task;
  /** For Status.err. */
  readonly text: string;
}

export interface RoundLimits {
  /** Assignments and explanations together. */
  readonly operationsMax: number;
  /** Explanations that replace another one. */
  readonly retellingsMax: number;
  /** After so many looks at a node for a group (about 0.2 µs each) no further group is begun: a round holds up everything else. */
  readonly judgementsMax: number;
}

export interface Round {
  readonly assignments: readonly Assignment[];
  readonly explanations: readonly Explanation[];
  /** Work is left that a limit stopped; another round can go on at once. */
  readonly hasMore: boolean;
  /** Explanations have changed that may wait. */
  readonly hasStale: boolean;
}

interface Group {
  readonly key: string;
  readonly demand: Demand;
  readonly preferences: readonly PlacementPreference[];
  readonly tasks: Map<string, Task>;
  /** What the nodes said when none of them took the rest; null: they must be asked. */
  tally: Tally | null;
}

interface Preassigned {
  readonly demand: Demand;
  task: Task;
}

/** Lines about single nodes in what `why` says. */
const nodesToldMax = 10;

export function isWanting({ status, desiredState }: Task): boolean {
  return status?.state === TaskState.PENDING && desiredState <= TaskState.COMPLETE;
}

export class Backlog {
  readonly #nodes: NodeSet;
  readonly #groups = new Map<string, Group>();
  readonly #preassigned = new Map<string, Map<string, Preassigned>>();
  /** Where a task waits: the key of its group, or (`node/…`) its node. */
  readonly #homes = new Map<string, string>();
  /** Groups and nodes with preassigned tasks that are to be tried. */
  readonly #fresh = new Set<string>();
  /** Groups whose tasks may have to be told another text. */
  readonly #stale = new Set<string>();
  /** What a task was told last, while its status may not say so yet. */
  readonly #told = new Map<string, string>();

  constructor(nodes: NodeSet) {
    this.#nodes = nodes;
  }

  /** Tasks that wait. */
  get size(): number {
    return this.#homes.size;
  }

  /** Takes the task as the store has it; true when there is something to try. */
  follow(task: Task): boolean {
    if (!isWanting(task)) {
      this.drop(task.id);
      return false;
    }
    const home = task.nodeId === "" ? groupKey(task) : `node/${task.nodeId}`;
    const old = this.#homes.get(task.id);
    if (old !== undefined && old !== home) this.drop(task.id);
    this.#homes.set(task.id, home);
    if (task.nodeId === "") this.#group(home, task).tasks.set(task.id, task);
    else this.#waitFor(home, task);
    if (old === home) return false;
    this.#fresh.add(home);
    return true;
  }

  drop(taskId: string): void {
    const home = this.#homes.get(taskId);
    if (home === undefined) return;
    this.#homes.delete(taskId);
    this.#told.delete(taskId);
    const tasks = this.#groups.get(home)?.tasks ?? this.#preassigned.get(home);
    tasks?.delete(taskId);
    if (tasks?.size !== 0) return;
    this.#groups.delete(home);
    this.#preassigned.delete(home);
    this.#fresh.delete(home);
    this.#stale.delete(home);
  }

  /** What the task was told has not reached its status. */
  forgetTold(taskId: string): void {
    if (!this.#told.delete(taskId)) return;
    const home = this.#homes.get(taskId);
    if (home !== undefined) this.#fresh.add(home);
  }

  /** All are to be tried: a node is gone, so what the nodes said is no longer right. */
  tryAll(): void {
    for (const key of this.#groups.keys()) this.#fresh.add(key);
    for (const key of this.#preassigned.keys()) this.#fresh.add(key);
  }

  /** Decides as much as the limits allow, and charges the nodes (B3). `now`: milliseconds since the epoch. */
  round(now: number, limits: RoundLimits): Round {
    const round = {
      assignments: [] as Assignment[],
      explanations: [] as Explanation[],
      retellings: limits.retellingsMax,
      judgements: 0,
    };
    const room = (): number => limits.operationsMax - round.assignments.length - round.explanations.length;
    this.#lookAtChanged();
    for (const home of this.#fresh) {
      if (room() <= 0 || round.judgements >= limits.judgementsMax) break;
      this.#fresh.delete(home);
      const group = this.#groups.get(home);
      const isDone =
        group === undefined ? this.#tryPreassigned(home, round, room) : this.#tryGroup(group, now, round, room);
      if (isDone) continue;
      this.#fresh.add(home);
      break;
    }
    // Over a copy: a group that the limits stop stays stale, and would come round again.
    const stale = Array.from(this.#stale);
    for (const home of stale) {
      if (room() <= 0) break;
      this.#stale.delete(home);
      const group = this.#groups.get(home);
      if (group?.tally != null && !this.#explain(group, group.tally, round, room)) this.#stale.add(home);
    }
    return {
      assignments: round.assignments,
      explanations: round.explanations,
      hasMore: this.#fresh.size > 0,
      hasStale: this.#stale.size > 0,
    };
  }

  /** What the nodes say to a waiting task now, in sentences; empty for a task that does not wait here. */
  describe(task: Task): { readonly text: string; readonly nodes: readonly string[] } | null {
    const home = this.#homes.get(task.id);
    if (home === undefined) return null;
    const group = this.#groups.get(home);
    const demand = group?.demand ?? demandOf(task);
    const asked =
      task.nodeId === "" ? this.#nodes.nodes : [this.#nodes.find(task.nodeId)].filter((info) => info !== undefined);
    const tally = new Tally();
    const nodes: string[] = [];
    for (const info of asked) {
      const verdict = judge(demand, info);
      tally.set(info.place, verdict);
      if (nodes.length < nodesToldMax) nodes.push(describeVerdict(verdict, demand, info));
    }
    if (asked.length > nodesToldMax) nodes.push(`and ${asked.length - nodesToldMax} more nodes`);
    return { text: tally.text(), nodes };
  }

  #group(key: string, task: Task): Group {
    let group = this.#groups.get(key);
    if (group === undefined) {
      const preferences = task.spec?.placement?.preferences ?? [];
      this.#groups.set(key, (group = { key, demand: demandOf(task), preferences, tasks: new Map(), tally: null }));
    }
    return group;
  }

  #waitFor(home: string, task: Task): void {
    let tasks = this.#preassigned.get(home);
    if (tasks === undefined) this.#preassigned.set(home, (tasks = new Map()));
    const waiting = tasks.get(task.id);
    if (waiting === undefined) tasks.set(task.id, { demand: demandOf(task), task });
    else waiting.task = task;
  }

  /** Nodes that changed are judged again for the groups that no node took, and for the tasks made for them. */
  #lookAtChanged(): void {
    const changed = this.#nodes.takeChanged();
    if (changed.size === 0) return;
    for (const info of changed) if (this.#preassigned.has(`node/${info.id}`)) this.#fresh.add(`node/${info.id}`);
    for (const group of this.#groups.values()) {
      const { tally, key } = group;
      if (tally === null || this.#fresh.has(key)) continue;
      this.#stale.add(key);
      for (const info of changed) {
        const verdict = judge(group.demand, info);
        tally.set(info.place, verdict);
        if (verdict === Verdict.fits) this.#fresh.add(key);
      }
    }
  }

  /** True when nothing of the group is left to do. */
  #tryGroup(group: Group, now: number, round: RoundDraft, room: () => number): boolean {
    const { demand, tasks, key } = group;
    const { nodes } = this.#nodes;
    round.judgements += nodes.length;
    const tally = new Tally();
    const fitting = new Set<NodeInfo>();
    for (const info of nodes) {
      const verdict = judge(demand, info);
      tally.set(info.place, verdict);
      if (verdict === Verdict.fits) fitting.add(info);
    }
    group.tally = null;
    if (fitting.size > 0) {
      const waiting = tasks.values();
      let task: Task | undefined;
      const pool = poolOf(nodes, (info) => fitting.has(info), group.preferences, {
        serviceId: demand.serviceId,
        fits: (info) => judgeRoom(demand, info) === Verdict.fits,
        take: (info) => this.#assign(task as Task, info, demand, false, round),
        penalty: (info) => info.penalty(key, now),
      });
      for (;;) {
        if (room() <= 0) break;
        task = waiting.next().value;
        if (task === undefined || !pool.place()) break;
      }
      if (tasks.size === 0) return true;
      if (room() <= 0) return false;
      for (const info of fitting) tally.set(info.place, judgeRoom(demand, info));
    }
    group.tally = tally;
    return this.#explain(group, tally, round, room);
  }

  #tryPreassigned(home: string, round: RoundDraft, room: () => number): boolean {
    for (const { task, demand } of this.#preassigned.get(home)?.values() ?? []) {
      if (room() <= 0) return false;
      const info = this.#nodes.find(task.nodeId);
      const verdict = info === undefined ? Verdict.notReady : judge(demand, info);
      if (info !== undefined && verdict === Verdict.fits) this.#assign(task, info, demand, true, round);
      else this.#tell(task, verdictText(verdict, 1), round);
    }
    return true;
  }

  #assign(task: Task, info: NodeInfo, demand: Demand, isPreassigned: boolean, round: RoundDraft): void {
    const generic = demand.generic.length === 0 ? noGeneric : info.generic.choose(demand.generic);
    // B3, B1
    this.#nodes.plan(task, info.id, generic);
    this.drop(task.id);
    round.assignments.push({ task, nodeId: info.id, generic, isPreassigned });
  }

  /** False when a limit stopped it; then the group is stale, or still to be tried. */
  #explain(group: Group, tally: Tally, round: RoundDraft, room: () => number): boolean {
    const text = tally.text();
    for (const task of group.tasks.values()) {
      if (room() <= 0) return false;
      if (this.#tell(task, text, round)) continue;
      this.#stale.add(group.key);
      return true;
    }
    return true;
  }

  /** B2. False when it must wait: it only replaces another explanation, and this round has replaced enough. */
  #tell(task: Task, text: string, round: RoundDraft): boolean {
    const before = this.#told.get(task.id) ?? task.status?.err ?? "";
    if (before === text) return true;
    if (before !== "") {
      if (round.retellings <= 0) return false;
      round.retellings -= 1;
    }
    this.#told.set(task.id, text);
    round.explanations.push({ task, text });
    return true;
  }
}

interface RoundDraft {
  readonly assignments: Assignment[];
  readonly explanations: Explanation[];
  retellings: number;
  judgements: number;
}

const noGeneric: readonly GenericResource[] = [];
