/**
 * Tasks that wait for a node, and the choice of nodes for them.
 *
 * Tasks of one service with the same requirements form a group: its demand is computed once, and each node is judged once for
 * it. A group that fits no node keeps the verdicts, and only changed nodes are judged again. A group interrupted by a limit
 * resumes where it stopped, as long as nothing else has changed a node.
 *
 * B1: a task either waits here or is decided, never both: deciding removes it.
 * B2: see round.ts.
 * B3: a decision is charged to its node at once, so the next decision sees it.
 */
import { TaskState, type Task } from "../../proto/gen/messages.ts";
import { isWanted, observedState } from "../task.ts";
import { describeVerdict, presetText, Tally } from "./explain.ts";
import { demandKey, demandOf, judge, judgeCapacity, Verdict, type Demand } from "./filters.ts";
import { groupKey, type NodeSet } from "./node-set.ts";
import { type NodeInfo, noGeneric, noVolumes, type Tracked } from "./tracked.ts";
import { Group, NodeQueue } from "./queues.ts";
import { isFull, report, type Round, type RoundDraft, type RoundLimits } from "./round.ts";
import { poolOf } from "./spread.ts";
import { volumeWantsOf } from "./volumes.ts";

/** A group interrupted by a limit; valid while only its own decisions have changed the nodes. */
interface Opened {
  readonly group: Group;
  readonly tally: Tally;
  readonly place: (tracked: Tracked, round: RoundDraft) => boolean;
  revision: number;
}

/** Maximum nodes that `why` lists. */
const nodesListedMax = 10;
/** Pending node changes, in addition to one per node, above which the affected groups start over. */
const changesMax = 1_000;

export function isWanting(task: Task): boolean {
  return observedState(task) === TaskState.PENDING && isWanted(task);
}

export class Backlog {
  readonly #nodes: NodeSet;
  readonly #groups = new Map<string, Group>();
  readonly #nodeQueues = new Map<string, NodeQueue>();
  #size = 0;
  /** To be tried in the next round. */
  readonly #fresh = new Set<Group | NodeQueue>();
  /** Groups whose tasks may need another explanation. */
  readonly #stale = new Set<Group>();
  /** Groups whose tally lacks some of the changes. */
  readonly #behind = new Set<Group>();
  /** Changed nodes, in order, kept until every tally includes them; the first has number #changesBefore. */
  #changes: NodeInfo[] = [];
  #changesBefore = 0;
  #opened: Opened | null = null;
  /** Successive tasks are mostly of the same group. */
  #lastGroup: Group | null = null;
  #volumesSeen = 0;

  constructor(nodes: NodeSet) {
    this.#nodes = nodes;
  }

  /** Number of waiting tasks. */
  get size(): number {
    return this.#size;
  }

  /** Whether a change since the last round may help a waiting task, or change its explanation. */
  get isAwake(): boolean {
    if (this.#size === 0) return false;
    return this.#fresh.size > 0 || this.#nodes.hasChanged() || this.#nodes.volumes.revision !== this.#volumesSeen;
  }

  /** Updates the task from the store; true if there is something to try. */
  follow(task: Task, known: Tracked | null = this.#nodes.tracked(task.id)): boolean {
    if (!isWanting(task)) {
      if (known !== null) this.#drop(known);
      return false;
    }
    const queue = task.nodeId === "" ? this.#group(task) : this.#queue(task.nodeId);
    const tracked = known ?? this.#nodes.add(task);
    const isNew = tracked.queue !== queue;
    if (isNew) {
      this.#leave(tracked);
      queue.add(tracked);
      this.#size += 1;
    }
    tracked.task = task;
    if (queue instanceof Group) queue.reported = null;
    else queue.wantsVolumes ||= volumeWantsOf(task).length > 0;
    if (!isNew) return false;
    // The verdicts on its group apply to it, too: it only needs the explanation.
    if (queue instanceof Group && queue.tally !== null) this.#stale.add(queue);
    else this.#fresh.add(queue);
    return true;
  }

  drop(taskId: string): void {
    const tracked = this.#nodes.tracked(taskId);
    if (tracked !== null) this.#drop(tracked);
  }

  #drop(tracked: Tracked): void {
    if (tracked.queue === null) return;
    this.#leave(tracked);
    this.#nodes.untrack(tracked);
  }

  /** Removes the task from its queue, if it is in one. */
  #leave(tracked: Tracked): void {
    const queue = tracked.queue;
    if (queue === null) return;
    queue.remove(tracked);
    tracked.reported = null;
    this.#size -= 1;
    if (queue.size > 0) return;
    if (queue instanceof NodeQueue) {
      this.#nodeQueues.delete(queue.nodeId);
      this.#fresh.delete(queue);
    } else if (queue instanceof Group) {
      this.#groups.delete(queue.key);
      if (this.#lastGroup === queue) this.#lastGroup = null;
      this.#fresh.delete(queue);
      this.#stale.delete(queue);
      this.#behind.delete(queue);
      if (this.#opened?.group === queue) this.#opened = null;
    }
  }

  /** The task's explanation has not reached its status. */
  forgetReported(taskId: string): void {
    const tracked = this.#nodes.tracked(taskId);
    if (tracked === null || tracked.reported === null) return;
    tracked.reported = null;
    const queue = tracked.queue;
    if (queue instanceof Group) {
      queue.reported = null;
      if (queue.tally === null) this.#fresh.add(queue);
      else this.#stale.add(queue);
    } else if (queue instanceof NodeQueue) this.#fresh.add(queue);
  }

  /** Decides as much as the limits allow, and charges the nodes (B3). `now`: milliseconds since the Unix epoch. */
  round(now: number, limits: RoundLimits): Round {
    const round: RoundDraft = {
      now,
      limits,
      assignments: [],
      explanations: [],
      replacements: limits.replacementsMax,
      judgements: 0,
    };
    this.#processChanges();
    this.#catchUp(round);
    if (this.#opened !== null && !this.#resume(this.#opened, round)) return this.#closed(round);
    for (const queue of this.#fresh) {
      if (isFull(round) || round.judgements >= limits.judgementsMax) break;
      this.#fresh.delete(queue);
      const isDone = queue instanceof Group ? this.#tryGroup(queue, round) : this.#tryNodeQueue(queue, round);
      if (isDone) continue;
      if (queue instanceof NodeQueue) this.#fresh.add(queue);
      break;
    }
    // Over a copy: a group that the limits stop is added again.
    for (const group of Array.from(this.#stale)) {
      if (isFull(round)) break;
      if (group.tally === null || this.#behind.has(group)) continue;
      this.#stale.delete(group);
      if (!this.#explain(group, group.tally, round)) this.#stale.add(group);
    }
    return this.#closed(round);
  }

  /** The nodes' current verdicts on a waiting task, as sentences; null for a task that does not wait here. */
  describe(task: Task): { readonly text: string; readonly nodes: readonly string[] } | null {
    const queue = this.#nodes.tracked(task.id)?.queue ?? null;
    if (queue === null) return null;
    const demand = queue instanceof Group ? queue.demand : demandOf(task);
    const asked =
      task.nodeId === "" ? this.#nodes.nodes : [this.#nodes.find(task.nodeId)].filter((info) => info !== undefined);
    const tally = new Tally();
    const nodes: string[] = [];
    for (const info of asked) {
      const verdict = judge(demand, info);
      tally.set(info.place, verdict);
      if (nodes.length < nodesListedMax)
        nodes.push(describeVerdict(verdict, demand, info, this.#nodes.nameOf(info.id)));
    }
    if (asked.length > nodesListedMax) nodes.push(`and ${asked.length - nodesListedMax} more nodes`);
    return { text: tally.text(), nodes };
  }

  #closed({ assignments, explanations }: RoundDraft): Round {
    const hasMore = this.#fresh.size > 0 || this.#behind.size > 0 || this.#opened !== null;
    return { assignments, explanations, hasMore, hasStale: this.#stale.size > 0 };
  }

  #group(task: Task): Group {
    const last = this.#lastGroup;
    if (last !== null && last.isLike(task)) return last;
    const key = demandKey(task);
    let group = this.#groups.get(key);
    if (group === undefined) this.#groups.set(key, (group = new Group(key, task)));
    this.#lastGroup = group;
    return group;
  }

  #queue(nodeId: string): NodeQueue {
    let queue = this.#nodeQueues.get(nodeId);
    if (queue === undefined) this.#nodeQueues.set(nodeId, (queue = new NodeQueue(nodeId)));
    return queue;
  }

  /** Changed nodes wake the tasks created for them, and the groups that fit no node. */
  #processChanges(): void {
    const changed = this.#nodes.takeChanged();
    if (changed.size > 0) {
      for (const group of this.#groups.values()) if (group.tally !== null) this.#behind.add(group);
      if (this.#nodeQueues.size > 0) this.#wakeNodeQueues(changed);
      // Only groups that are behind need the changes.
      if (this.#behind.size > 0) for (const info of changed) this.#changes.push(info);
    }
    if (this.#changes.length > changesMax + this.#nodes.nodes.length) this.#startOver();
    const { revision } = this.#nodes.volumes;
    if (revision === this.#volumesSeen) return;
    this.#volumesSeen = revision;
    for (const queue of [...this.#groups.values(), ...this.#nodeQueues.values()])
      if (queue.wantsVolumes) this.#fresh.add(queue);
  }

  #wakeNodeQueues(changed: ReadonlySet<NodeInfo>): void {
    for (const { id } of changed) {
      const queue = this.#nodeQueues.get(id);
      if (queue !== undefined) this.#fresh.add(queue);
    }
  }

  /** Too many changes are pending: judging every node again is less work. */
  #startOver(): void {
    for (const group of this.#behind) {
      group.tally = null;
      this.#fresh.add(group);
    }
    this.#behind.clear();
  }

  /** Judges only the changed nodes again, for the groups that fit no node. */
  #catchUp(round: RoundDraft): void {
    const last = this.#changesBefore + this.#changes.length;
    for (const group of this.#behind) {
      // The other half is for groups that have not been tried yet.
      if (round.judgements >= round.limits.judgementsMax / 2) return;
      this.#behind.delete(group);
      const { tally, demand } = group;
      if (tally === null || this.#fresh.has(group)) continue;
      this.#stale.add(group);
      for (let at = Math.max(group.seen, this.#changesBefore); at < last; at += 1) {
        const info = this.#changes[at - this.#changesBefore] as NodeInfo;
        round.judgements += 1;
        if (info.node === null) {
          tally.drop(info.place);
          continue;
        }
        const verdict = judge(demand, info);
        tally.set(info.place, verdict);
        if (verdict === Verdict.fits) this.#fresh.add(group);
      }
      group.seen = last;
    }
    this.#changesBefore = last;
    this.#changes = [];
  }

  /** True if nothing is left to do for the group. */
  #tryGroup(group: Group, round: RoundDraft): boolean {
    const { demand, preferences } = group;
    const { nodes, places } = this.#nodes;
    round.judgements += nodes.length;
    const tally = new Tally(places);
    for (const info of nodes) tally.set(info.place, judge(demand, info));
    group.tally = null;
    group.reported = null;
    if (tally.count(Verdict.fits) === 0) return this.#finish(group, tally, round);
    let tracked = group.first as Tracked;
    let draft = round;
    const failures = groupKey(tracked.task);
    const pool = poolOf(nodes, (info) => tally.verdict(info.place) === Verdict.fits, preferences, {
      serviceId: demand.serviceId,
      fits: (info) => judgeCapacity(demand, info) === Verdict.fits,
      take: (info) => this.#assign(tracked, info, demand, false, draft),
      penalty: (info) => info.penalty(failures, round.now),
    });
    const place = (next: Tracked, of: RoundDraft): boolean => {
      tracked = next;
      draft = of;
      return pool.place();
    };
    this.#opened = { group, tally, place, revision: this.#nodes.revision };
    return this.#resume(this.#opened, round);
  }

  /** False if a limit stopped it; true also if the group must be tried again. */
  #resume(opened: Opened, round: RoundDraft): boolean {
    const { group, tally } = opened;
    if (opened.revision !== this.#nodes.revision) {
      this.#opened = null;
      this.#fresh.add(group);
      return true;
    }
    for (let tracked = group.first; tracked !== null; tracked = group.first) {
      if (isFull(round)) {
        opened.revision = this.#nodes.revision;
        return false;
      }
      if (!opened.place(tracked, round)) break;
    }
    this.#opened = null;
    if (group.first === null) return true;
    for (const info of this.#nodes.nodes)
      if (tally.verdict(info.place) === Verdict.fits) tally.set(info.place, judgeCapacity(group.demand, info));
    return this.#finish(group, tally, round);
  }

  /** No node can run the remaining tasks. */
  #finish(group: Group, tally: Tally, round: RoundDraft): boolean {
    group.tally = tally;
    this.#fresh.delete(group);
    // The nodes that its own decisions changed have just been judged; judging them again costs little.
    group.seen = this.#changesBefore + this.#changes.length;
    if (!this.#explain(group, tally, round)) this.#stale.add(group);
    return true;
  }

  #tryNodeQueue(queue: NodeQueue, round: RoundDraft): boolean {
    const info = this.#nodes.find(queue.nodeId);
    let next: Tracked | null = null;
    for (let tracked = queue.first; tracked !== null; tracked = next) {
      if (isFull(round)) return false;
      // Read before the task leaves the queue.
      next = tracked.next;
      const demand = demandOf(tracked.task);
      const verdict = info === undefined ? Verdict.notReady : judge(demand, info);
      if (info !== undefined && verdict === Verdict.fits) this.#assign(tracked, info, demand, true, round);
      else report(tracked, presetText(verdict, demand, info, this.#nodes.nameOf(queue.nodeId)), round);
    }
    return true;
  }

  #assign(tracked: Tracked, info: NodeInfo, demand: Demand, isPreassigned: boolean, round: RoundDraft): void {
    const { task } = tracked;
    const generic = demand.generic.length === 0 ? noGeneric : (info.generic?.choose(demand.generic) ?? noGeneric);
    const volumes =
      demand.volumes.length === 0 || info.node === null
        ? noVolumes
        : (info.volumes.choose(demand.volumes, info.node) ?? noVolumes);
    // B1, B3
    this.#leave(tracked);
    this.#nodes.planOn(tracked, info, generic, volumes);
    round.assignments.push({ task, nodeId: info.id, generic, volumes, isPreassigned, tracked });
  }

  /** False if a limit stopped it and some of the group's tasks still need the explanation. */
  #explain(group: Group, tally: Tally, round: RoundDraft): boolean {
    const text = tally.text();
    if (group.reported === text) return true;
    for (let tracked = group.first; tracked !== null; tracked = tracked.next)
      if (isFull(round) || !report(tracked, text, round)) return false;
    group.reported = text;
    return true;
  }
}
