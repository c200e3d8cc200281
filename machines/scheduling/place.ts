/**
 * The tasks that wait for a node, and the choice of nodes for them.
 *
 * Tasks of one service that ask the same of a node form a group: its demand is worked out once and all nodes are judged
 * once for it. A group that no node takes keeps their verdicts, and only nodes that changed are judged again. A group that
 * a limit stops is gone on with where it stood, as long as nobody else has changed a node.
 *
 * B1: a task waits here, or is decided, never both: whoever decides it takes it out.
 * B2: see round.ts.
 * B3: a decision is charged to its node at once, so the next one sees it.
 */
import { TaskState, type Task } from "../../proto/gen/messages.ts";
import { describeVerdict, presetText, Tally } from "./explain.ts";
import { demandKey, demandOf, judge, judgeRoom, Verdict, type Demand } from "./filters.ts";
import { groupKey, type NodeInfo, type NodeSet } from "./node-set.ts";
import { Group, Station } from "./queues.ts";
import { isFull, tell, type Round, type RoundDraft, type RoundLimits } from "./round.ts";
import { poolOf } from "./spread.ts";
import { noGeneric, noVolumes, type Tracked } from "./tracked.ts";
import { volumeWantsOf } from "./volumes.ts";

/** A group that a limit stopped in the middle, as long as nothing but its own decisions has changed the nodes. */
interface Opened {
  readonly group: Group;
  readonly tally: Tally;
  readonly place: (tracked: Tracked, round: RoundDraft) => boolean;
  revision: number;
}

/** Lines about single nodes in what `why` says. */
const nodesToldMax = 10;
/** Changes of nodes that wait to be looked at, beside one for each node, before the groups concerned start over. */
const changesKeptMax = 1_000;

export function isWanting({ status, desiredState }: Task): boolean {
  return status?.state === TaskState.PENDING && desiredState <= TaskState.COMPLETE;
}

export class Backlog {
  readonly #nodes: NodeSet;
  readonly #groups = new Map<string, Group>();
  readonly #stations = new Map<string, Station>();
  #size = 0;
  /** What is to be tried. */
  readonly #fresh = new Set<Group | Station>();
  /** Groups whose tasks may have to be told another text. */
  readonly #stale = new Set<Group>();
  /** Groups whose tally has not seen all changes yet. */
  readonly #behind = new Set<Group>();
  /** Nodes that changed, in order, until every tally has seen them; the first of them is number #changesBefore. */
  #changes: NodeInfo[] = [];
  #changesBefore = 0;
  #opened: Opened | null = null;
  /** Tasks come by the service. */
  #lastGroup: Group | null = null;
  #volumesSeen = 0;

  constructor(nodes: NodeSet) {
    this.#nodes = nodes;
  }

  /** Tasks that wait. */
  get size(): number {
    return this.#size;
  }

  /** Something has changed since the last round that may help a task that waits, or change what it is told. */
  get isAwake(): boolean {
    if (this.#size === 0) return false;
    return this.#fresh.size > 0 || this.#nodes.hasChanged() || this.#nodes.volumes.revision !== this.#volumesSeen;
  }

  /** Takes the task as the store has it; true when there is something to try. */
  follow(task: Task, known: Tracked | null = this.#nodes.tracked(task.id)): boolean {
    if (!isWanting(task)) {
      if (known !== null) this.#drop(known);
      return false;
    }
    const home = task.nodeId === "" ? this.#group(task) : this.#station(task.nodeId);
    const tracked = known ?? this.#nodes.add(task);
    const isNew = tracked.queue !== home;
    if (isNew) {
      this.#leave(tracked);
      home.add(tracked);
      this.#size += 1;
    }
    tracked.task = task;
    if (home instanceof Group) home.said = null;
    else home.wantsVolumes ||= volumeWantsOf(task).length > 0;
    if (!isNew) return false;
    // What the nodes said to the others of its group they say to this one: it only has to be told.
    if (home instanceof Group && home.tally !== null) this.#stale.add(home);
    else this.#fresh.add(home);
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

  /** It waits no more where it waited, if it did. */
  #leave(tracked: Tracked): void {
    const home = tracked.queue;
    if (home === null) return;
    home.remove(tracked);
    tracked.told = null;
    this.#size -= 1;
    if (home.size > 0) return;
    if (home instanceof Station) {
      this.#stations.delete(home.nodeId);
      this.#fresh.delete(home);
    } else if (home instanceof Group) {
      this.#groups.delete(home.key);
      if (this.#lastGroup === home) this.#lastGroup = null;
      this.#fresh.delete(home);
      this.#stale.delete(home);
      this.#behind.delete(home);
      if (this.#opened?.group === home) this.#opened = null;
    }
  }

  /** What the task was told has not reached its status. */
  forgetTold(taskId: string): void {
    const tracked = this.#nodes.tracked(taskId);
    if (tracked === null || tracked.told === null) return;
    tracked.told = null;
    const home = tracked.queue;
    if (home instanceof Group) {
      home.said = null;
      if (home.tally === null) this.#fresh.add(home);
      else this.#stale.add(home);
    } else if (home instanceof Station) this.#fresh.add(home);
  }

  /** Decides as much as the limits allow, and charges the nodes (B3). `now`: milliseconds since the epoch. */
  round(now: number, limits: RoundLimits): Round {
    const round: RoundDraft = {
      now,
      limits,
      assignments: [],
      explanations: [],
      retellings: limits.retellingsMax,
      judgements: 0,
    };
    this.#lookAtChanged();
    this.#catchUp(round);
    if (this.#opened !== null && !this.#goOn(this.#opened, round)) return this.#closed(round);
    for (const home of this.#fresh) {
      if (isFull(round) || round.judgements >= limits.judgementsMax) break;
      this.#fresh.delete(home);
      const isDone = home instanceof Group ? this.#tryGroup(home, round) : this.#tryStation(home, round);
      if (isDone) continue;
      if (home instanceof Station) this.#fresh.add(home);
      break;
    }
    // Over a copy: a group that the limits stop stays stale, and would come round again.
    for (const group of Array.from(this.#stale)) {
      if (isFull(round)) break;
      if (group.tally === null || this.#behind.has(group)) continue;
      this.#stale.delete(group);
      if (!this.#explain(group, group.tally, round)) this.#stale.add(group);
    }
    return this.#closed(round);
  }

  /** What the nodes say to a waiting task now, in sentences; empty for a task that does not wait here. */
  describe(task: Task): { readonly text: string; readonly nodes: readonly string[] } | null {
    const home = this.#nodes.tracked(task.id)?.queue ?? null;
    if (home === null) return null;
    const demand = home instanceof Group ? home.demand : demandOf(task);
    const asked =
      task.nodeId === "" ? this.#nodes.nodes : [this.#nodes.find(task.nodeId)].filter((info) => info !== undefined);
    const tally = new Tally();
    const nodes: string[] = [];
    for (const info of asked) {
      const verdict = judge(demand, info);
      tally.set(info.place, verdict);
      if (nodes.length < nodesToldMax) nodes.push(describeVerdict(verdict, demand, info, this.#nodes.nameOf(info.id)));
    }
    if (asked.length > nodesToldMax) nodes.push(`and ${asked.length - nodesToldMax} more nodes`);
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

  #station(nodeId: string): Station {
    let station = this.#stations.get(nodeId);
    if (station === undefined) this.#stations.set(nodeId, (station = new Station(nodeId)));
    return station;
  }

  /** What changed wakes the tasks made for it, and the groups that no node took. */
  #lookAtChanged(): void {
    const changed = this.#nodes.takeChanged();
    if (changed.size > 0) {
      for (const group of this.#groups.values()) if (group.tally !== null) this.#behind.add(group);
      if (this.#stations.size > 0) this.#wakeStations(changed);
      // Changes are for those that are behind; without any of these there is nothing to remember.
      if (this.#behind.size > 0) for (const info of changed) this.#changes.push(info);
    }
    if (this.#changes.length > changesKeptMax + this.#nodes.nodes.length) this.#startOver();
    const { revision } = this.#nodes.volumes;
    if (revision === this.#volumesSeen) return;
    this.#volumesSeen = revision;
    for (const home of [...this.#groups.values(), ...this.#stations.values()])
      if (home.wantsVolumes) this.#fresh.add(home);
  }

  #wakeStations(changed: ReadonlySet<NodeInfo>): void {
    for (const { id } of changed) {
      const station = this.#stations.get(id);
      if (station !== undefined) this.#fresh.add(station);
    }
  }

  /** More changes than nodes are waiting to be looked at: to ask every node anew is less work. */
  #startOver(): void {
    for (const group of this.#behind) {
      group.tally = null;
      this.#fresh.add(group);
    }
    this.#behind.clear();
  }

  /** Nodes that changed are judged again for the groups that no node took, and no others. */
  #catchUp(round: RoundDraft): void {
    const last = this.#changesBefore + this.#changes.length;
    for (const group of this.#behind) {
      // The other half is for groups that have not been tried at all.
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

  /** True when nothing of the group is left to do. */
  #tryGroup(group: Group, round: RoundDraft): boolean {
    const { demand, preferences } = group;
    const { nodes, places } = this.#nodes;
    round.judgements += nodes.length;
    const tally = new Tally(places);
    for (const info of nodes) tally.set(info.place, judge(demand, info));
    group.tally = null;
    group.said = null;
    if (tally.count(Verdict.fits) === 0) return this.#finish(group, tally, round);
    let tracked = group.first as Tracked;
    let draft = round;
    const failures = groupKey(tracked.task);
    const pool = poolOf(nodes, (info) => tally.verdict(info.place) === Verdict.fits, preferences, {
      serviceId: demand.serviceId,
      fits: (info) => judgeRoom(demand, info) === Verdict.fits,
      take: (info) => this.#assign(tracked, info, demand, false, draft),
      penalty: (info) => info.penalty(failures, round.now),
    });
    const place = (next: Tracked, of: RoundDraft): boolean => {
      tracked = next;
      draft = of;
      return pool.place();
    };
    this.#opened = { group, tally, place, revision: this.#nodes.revision };
    return this.#goOn(this.#opened, round);
  }

  /** False when a limit stopped it; true too when the group must be tried anew. */
  #goOn(opened: Opened, round: RoundDraft): boolean {
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
      if (tally.verdict(info.place) === Verdict.fits) tally.set(info.place, judgeRoom(group.demand, info));
    return this.#finish(group, tally, round);
  }

  /** Nobody takes the rest. */
  #finish(group: Group, tally: Tally, round: RoundDraft): boolean {
    group.tally = tally;
    this.#fresh.delete(group);
    // The nodes that its own decisions changed were judged just now; that they are judged once more costs little.
    group.seen = this.#changesBefore + this.#changes.length;
    if (!this.#explain(group, tally, round)) this.#stale.add(group);
    return true;
  }

  #tryStation(station: Station, round: RoundDraft): boolean {
    const info = this.#nodes.find(station.nodeId);
    let next: Tracked | null = null;
    for (let tracked = station.first; tracked !== null; tracked = next) {
      if (isFull(round)) return false;
      // Before it leaves the queue.
      next = tracked.next;
      const demand = demandOf(tracked.task);
      const verdict = info === undefined ? Verdict.notReady : judge(demand, info);
      if (info !== undefined && verdict === Verdict.fits) this.#assign(tracked, info, demand, true, round);
      else tell(tracked, presetText(verdict, demand, info, this.#nodes.nameOf(station.nodeId)), round);
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

  /** False when a limit stopped it; then some of the group are still to be told. */
  #explain(group: Group, tally: Tally, round: RoundDraft): boolean {
    const text = tally.text();
    if (group.said === text) return true;
    for (let tracked = group.first; tracked !== null; tracked = tracked.next)
      if (isFull(round) || !tell(tracked, text, round)) return false;
    group.said = text;
    return true;
  }
}
