/** Watches a rehearsal, and fills its outcome: services, jobs, placement, elections, and nodes that are lost and return. */
import { isJob } from "../../machines/orchestration/service-mode.ts";
import { isEnded, isWanted, observedState } from "../../machines/task.ts";
import { NodeStatus_State, TaskState, type Node, type Service, type Task } from "../../proto/gen/messages.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import type { Commit } from "../../runtime/store/store.ts";
import { Availability } from "./availability.ts";
import { Jobs } from "./jobs.ts";
import { LogFollower } from "./log-follower.ts";
import { Moves, nodeName } from "./moves.ts";
import type { JobOutcome, PlacementSample, Refusal, RunEvent, ServiceOutcome } from "./outcome.ts";
import { Rollouts } from "./rollouts.ts";

interface Watched {
  readonly id: string;
  readonly name: string;
  readonly availability: Availability;
  isGlobal: boolean;
}

/** Part of an outcome that is measured. */
export interface Measured {
  readonly services: readonly ServiceOutcome[];
  readonly jobs: readonly JobOutcome[];
  readonly placement: readonly PlacementSample[];
  readonly refusals: readonly Refusal[];
  readonly events: readonly RunEvent[];
}

export class Measures {
  readonly #now: () => number;
  readonly #follower = new LogFollower((commit, store, isWhole) => this.#commit(commit, store, isWhole));
  /** In order of creation, also removed ones; without jobs. */
  readonly #services: Watched[] = [];
  readonly #byId = new Map<string, Watched>();
  readonly #byName = new Map<string, Watched>();
  /** Running tasks of services that the log has not shown yet. */
  readonly #early = new Map<string, number>();
  readonly #moves = new Moves();
  readonly #rollouts = new Rollouts();
  readonly #jobs = new Jobs((text) => this.event(text));
  readonly #placement: PlacementSample[] = [];
  readonly #refusals: Refusal[] = [];
  readonly #events: RunEvent[] = [];
  /** Number of wanted tasks of each global service. */
  readonly #places = new Map<string, number>();
  readonly #runningOn = new Map<string, number>();
  /** When the scenario began; infinite before. */
  #began = Number.POSITIVE_INFINITY;
  #leader = "";
  #epoch = 0;

  /** `now`: milliseconds of simulated time. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** The state of the cluster as far as some manager knows it; null before there is one. */
  get store(): Replica | null {
    return this.#follower.store;
  }

  /** Whether all wanted tasks of all services run; jobs do not count. */
  get areFull(): boolean {
    return this.#services.every(({ availability }) => availability.isFull);
  }

  follow(replica: Replica): void {
    this.#follower.follow(replica);
  }

  /** The number of a service's running tasks has changed. */
  run(service: string, change: number): void {
    const watched = this.#byName.get(service);
    if (watched === undefined) this.#early.set(service, (this.#early.get(service) ?? 0) + change);
    else watched.availability.run(change, this.#now());
  }

  /** The scenario begins: earlier events do not count. */
  begin(): void {
    this.#began = this.#now();
  }

  event(text: string): void {
    if (this.#atMs >= 0) this.#events.push({ atMs: this.#atMs, text });
  }

  refuse(request: string, reason: string): void {
    if (this.#atMs >= 0) this.#refusals.push({ atMs: this.#atMs, request, reason });
  }

  /** Since the scenario began. */
  get #atMs(): number {
    return Math.round(this.#now() - this.#began);
  }

  /** Adds a sample of the placement. */
  samplePlacement(): void {
    const { store } = this;
    if (store === null) return;
    let [count, sum, min, max] = [0, 0, Number.POSITIVE_INFINITY, 0];
    for (const node of store.all("node")) {
      if (node.status?.state !== NodeStatus_State.READY || !isWorker(node, store)) continue;
      const running = this.#runningOn.get(node.id) ?? 0;
      count += 1;
      sum += running;
      min = Math.min(min, running);
      max = Math.max(max, running);
    }
    const atMs = this.#atMs;
    this.#placement.push(count === 0 ? { atMs, min: 0, max: 0, mean: 0 } : { atMs, min, max, mean: sum / count });
  }

  /** Adds this much time to what the rollouts wait for, and notes which jobs are over. `nowMs`: by a manager's clock. */
  sampleProgress(nowMs: number, ms: number): void {
    if (this.store === null) return;
    this.#rollouts.sample(this.store, nowMs, ms);
    this.#jobs.sample(this.store, this.#now());
  }

  /** `endMs`: length of the run; 0 if the scenario did not begin. */
  measured(endMs: number): Measured {
    const services = this.#services.map(({ availability, id, name }) => ({
      name,
      ...availability.outcome(this.#began, endMs),
      rollouts: this.#rollouts.of(id, this.#began),
      moves: this.#moves.of(id, this.#began),
    }));
    const jobs = this.#jobs.all(this.store, this.#began).map(({ executions, name, serviceIds }) => ({
      name,
      executions,
      moves: serviceIds.flatMap((id) => this.#moves.of(id, this.#began)).sort((a, b) => a.atMs - b.atMs),
    }));
    return { services, jobs, placement: this.#placement, refusals: this.#refusals, events: this.#events };
  }

  #commit(commit: Commit & { readonly epoch?: number }, store: Replica, isWhole: boolean): void {
    this.#noteLeader(commit, store);
    const atMs = this.#now();
    for (const change of commit.changes) {
      switch (change.table) {
        case "task":
          this.#noteTask(change.old, change.action === "remove" ? null : change.object, store, isWhole);
          break;
        case "service":
          this.#noteService(change.object, change.old, change.action === "remove", atMs);
          break;
        case "node":
          if (change.action !== "remove") this.#noteNode(change.object, change.old);
          else this.event(`${nodeText(change.object)} was removed`);
          break;
        default:
      }
    }
    this.#jobs.settle(store, atMs);
  }

  #noteLeader({ epoch, writer = "" }: Commit & { readonly epoch?: number }, store: Replica): void {
    if (epoch === undefined || epoch === this.#epoch) return;
    this.#epoch = epoch;
    const name = nodeName(writer, store);
    this.event(name === this.#leader ? `${name} leads again` : `${name} leads`);
    this.#leader = name;
  }

  #noteService(service: Service, old: Service | null, isRemoved: boolean, atMs: number): void {
    if (isJob(service.spec)) return this.#jobs.note(service, isRemoved, atMs);
    const name = service.spec?.annotations?.name ?? "";
    let watched = this.#byId.get(service.id);
    if (watched === undefined) {
      watched = { id: service.id, name, availability: new Availability(atMs), isGlobal: service.spec?.global != null };
      this.#services.push(watched);
      this.#byId.set(service.id, watched);
      this.#byName.set(name, watched);
      const early = this.#early.get(name) ?? 0;
      this.#early.delete(name);
      if (early !== 0) watched.availability.run(early, atMs);
    }
    if (isRemoved || service.pendingDelete) watched.availability.want(0, atMs);
    else if (!watched.isGlobal) watched.availability.want(service.spec?.replicated?.replicas ?? 0, atMs);
    this.#rollouts.note(service, old, atMs);
  }

  #noteTask(old: Task | null, task: Task | null, store: Replica, isWhole: boolean): void {
    const { serviceId } = (task ?? old) as Task;
    const [before, now] = [placeOf(old), placeOf(task)];
    if (before !== now) {
      if (before !== "") this.#runningOn.set(before, (this.#runningOn.get(before) ?? 0) - 1);
      if (now !== "") this.#runningOn.set(now, (this.#runningOn.get(now) ?? 0) + 1);
    }
    const wants = Number(task !== null && isPlace(task)) - Number(old !== null && isPlace(old));
    if (wants !== 0) {
      const places = (this.#places.get(serviceId) ?? 0) + wants;
      this.#places.set(serviceId, places);
      const watched = this.#byId.get(serviceId);
      if (watched?.isGlobal === true) watched.availability.want(places, this.#now());
    }
    this.#jobs.noteTask(old, task, this.#now());
    if (task === null && old !== null) this.#moves.forget(old.id);
    if (task !== null && isWhole) this.#moves.note(task, old === null, this.#now(), store);
  }

  #noteNode(node: Node, old: Node | null): void {
    const [state, before] = [node.status?.state, old?.status?.state];
    if (state === before) return;
    const { DISCONNECTED, DOWN, READY } = NodeStatus_State;
    if (state === DOWN) this.#moves.noteDown(node.id, this.#now());
    if (state === DOWN) this.event(`${nodeText(node)} is down`);
    else if (state === DISCONNECTED) this.event(`${nodeText(node)} does not answer`);
    else if (state === READY && (before === DOWN || before === DISCONNECTED)) this.event(`${nodeText(node)} is back`);
    else if (state === READY) this.event(`${nodeText(node)} has joined`);
  }
}

function nodeText({ description, id }: Node): string {
  return `node ${description?.hostname || id}`;
}

/** A manager's own node runs no tasks. */
function isWorker({ id }: Node, store: Replica): boolean {
  return store.get("manager", id) === undefined;
}

/** Node of a task that runs according to the log; empty: none. */
function placeOf(task: Task | null): string {
  return task !== null && observedState(task) === TaskState.RUNNING ? task.nodeId : "";
}

/** Whether a task is its service's current one at its place. */
function isPlace(task: Task): boolean {
  return isWanted(task) && !isEnded(observedState(task));
}
