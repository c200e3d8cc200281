/**
 * The JSON API's view of this process's replica, kept up to date for all of its connections. A commit only marks views
 * that may have changed; marked views are recomputed once, when watchers are woken or a client sends a request. Starts with
 * `start`, or with the first request.
 *
 * F4: after `refresh` the view equals the replica; after `ready` at most one slice of work is left.
 * F5: one name is one entity: while tasks of a removed service are still ending, a new service of the same name hides them.
 */
import type { Commit, ObjectChange, Store } from "../../../runtime/store/store.ts";
import type { Clock, Subscription } from "../../../runtime/ports/index.ts";
import type { Task } from "../../../proto/gen/messages.ts";
import type { ClusterView } from "../entities/cluster-view.ts";
import { applicationName, isNodeBound, placeOf, serviceNameOf } from "../entities/names.ts";
import {
  annotationView,
  applicationView,
  differsForUnits,
  judgedTask,
  machineView,
  modelView,
  relationView,
  unitView,
  type ApplicationView,
  type Kind,
  type MachineView,
  type ModelView,
  type RelationView,
  type UnitView,
  type ActionView,
  type View,
} from "../entities/views.ts";
import { Claims } from "./claims.ts";
import { Entities, keyOf } from "./entities.ts";
import { Meetings } from "./networks.ts";
import { Wakers, type Topic } from "./wakers.ts";

/** Views recomputed in one slice: about 10 ms of work, after which other work can run. */
const recomputedMax = 300;
/** Pause between slices, in milliseconds: recomputing takes at most about two thirds of the process's time. */
const restMs = 5;

/** Topics: an entity's topic is its key; these are topics of sets. */
export const topics = {
  everything: "*",
  kind: (kind: Kind): Topic => `${kind}s`,
  unitsOn: (machine: string): Topic => `units on ${machine}`,
  unitsOf: (application: string): Topic => `units of ${application}`,
} as const;

export class Feed {
  readonly store: Store;
  readonly entities = new Entities(() => this.modelUuid);
  readonly #wakers: Wakers;
  readonly #cursors = new Set<{ readonly cursor: number }>();
  #following: Subscription | null = null;
  #modelUuid = "";

  // Marks: views that may have changed.
  #isClusterMarked = true;
  readonly #nodes = new Set<string>();
  readonly #services = new Set<string>();
  readonly #networks = new Set<string>();
  /** By place; any of the tasks there. */
  readonly #places = new Map<string, Task>();

  /** Views by table and id of their store object (units by place). */
  readonly #shown = new Map<string, View>();
  readonly #unitsOf = new Map<string, Map<string, UnitView>>();
  readonly #tallies = new Map<string, Record<string, number>>();
  /** F5: by place; few, and for a short time. */
  readonly #hidden = new Map<string, Task>();
  /** Units by name. */
  readonly #claims = new Claims<Task>();
  readonly #meetings: Meetings;
  readonly #clock: Clock;
  /** Tasks from before the start that are not marked yet. */
  #first: Iterator<Task> | null = null;
  #readiness: Promise<void> | null = null;
  #changed = new Set<Topic>();

  constructor(sources: { readonly store: Store; readonly clock: Clock }) {
    this.store = sources.store;
    this.#clock = sources.clock;
    this.#meetings = new Meetings(sources.store);
    this.#wakers = new Wakers(sources.clock, () => this.#news());
  }

  /** Empty until the cluster is initialized. */
  get modelUuid(): string {
    return this.#modelUuid;
  }

  /** Starts computing the views, in slices; a large cluster takes seconds in total. */
  start(): void {
    void this.ready();
    this.#wakers.schedule();
  }

  stop(): void {
    this.#following?.unsubscribe();
    this.#wakers.stop();
  }

  /** F4 */
  refresh(): void {
    this.#follow();
    this.#freshen(Number.POSITIVE_INFINITY);
  }

  /** F4: null if the view is up to date. Requests wait for it; other work continues. */
  ready(): Promise<void> | null {
    this.#follow();
    if (this.#readiness !== null || !this.#isBehind()) return this.#readiness;
    this.#freshen(recomputedMax);
    if (this.#isBehind()) this.#readiness = this.#catchUp().finally(() => (this.#readiness = null));
    return this.#readiness;
  }

  async #catchUp(): Promise<void> {
    while (this.#isBehind()) {
      await new Promise<void>((resolve) => void this.#clock.setTimeout(resolve, restMs));
      this.#freshen(recomputedMax);
    }
  }

  #isBehind(): boolean {
    const marks = this.#nodes.size + this.#places.size + this.#services.size + this.#networks.size;
    return this.#first !== null || marks > recomputedMax;
  }

  #freshen(most: number): void {
    if (!this.#isMarked()) return;
    this.#recompute(most);
    this.#wakers.schedule();
  }

  /** F4: computes the rest, once it is small. */
  #showNow(): void {
    this.#follow();
    this.#freshen(this.#isBehind() ? recomputedMax : Number.POSITIVE_INFINITY);
  }

  view(): ClusterView {
    this.#showNow();
    const view = {
      model: null as ModelView | null,
      machines: [] as MachineView[],
      applications: [] as ApplicationView[],
      units: [] as UnitView[],
      relations: [] as RelationView[],
    };
    for (const each of this.entities.all()) {
      if (each.kind === "model") view.model = each;
      else if (each.kind === "machine") view.machines.push(each);
      else if (each.kind === "application") view.applications.push(each);
      else if (each.kind === "unit") view.units.push(each);
      else if (each.kind === "relation") view.relations.push(each);
    }
    const none: ModelView = { kind: "model", id: "", name: "default", controllerUuid: "", labels: {} };
    return { ...view, model: view.model ?? none };
  }

  find<Wanted extends Kind>(kind: Wanted, id: string): Extract<View, { readonly kind: Wanted }> | undefined {
    this.#showNow();
    return this.entities.get(kind, id) as Extract<View, { readonly kind: Wanted }> | undefined;
  }

  unitsOf(application: string): Iterable<UnitView> {
    this.#showNow();
    return this.#unitsOf.get(application)?.values() ?? [];
  }

  /** Shows the state of a command in a unit; `null`: it is no longer kept. */
  showAction(id: string, view: ActionView | null): void {
    this.#follow();
    this.#show("action", id, view);
    this.#wakers.schedule();
  }

  *unitsOn(machine: string): Iterable<UnitView> {
    const found = this.find("machine", machine);
    if (found === undefined) return;
    const places = new Set<string>();
    for (const task of this.store.tasksByNode(found.nodeId)) places.add(placeOf(task));
    for (const place of places) {
      const unit = this.#shown.get(`task ${place}`);
      if (unit?.kind === "unit" && unit.machine === machine) yield unit;
    }
  }

  wait(topic: Topic, wake: () => void): Subscription {
    this.#follow();
    return this.#wakers.wait(topic, wake);
  }

  /** Registers the holder of a cursor, so that removed entities are kept until it has reported them. */
  follow(holder: { readonly cursor: number }): Subscription {
    this.#showNow();
    this.#cursors.add(holder);
    return { unsubscribe: () => void this.#cursors.delete(holder) };
  }

  #follow(): void {
    if (this.#following !== null) return;
    this.#following = this.store.watch((commit) => this.#onCommit(commit));
    for (const { id } of this.store.all("node")) this.#nodes.add(id);
    for (const { id } of this.store.all("service")) this.#services.add(id);
    for (const { id } of this.store.all("network")) this.#networks.add(id);
    this.#first = this.store.all("task")[Symbol.iterator]();
  }

  #onCommit({ changes }: Commit): void {
    for (const change of changes) this.#mark(change);
    if (this.#isMarked()) this.#wakers.schedule();
  }

  #isMarked(): boolean {
    return (
      this.#isClusterMarked ||
      this.#first !== null ||
      this.#nodes.size > 0 ||
      this.#services.size > 0 ||
      this.#networks.size > 0 ||
      this.#places.size > 0
    );
  }

  #mark(change: ObjectChange): void {
    switch (change.table) {
      case "cluster":
        this.#isClusterMarked = true;
        return;
      case "node":
        this.#nodes.add(change.object.id);
        if (change.action === "remove" || differsForUnits(change.old, change.object)) {
          for (const task of this.store.tasksByNode(change.object.id)) this.#markTask(task);
        }
        return;
      case "service":
        this.#services.add(change.object.id);
        // F5
        if (change.action !== "update") this.#markNamesakes(change.object.spec?.annotations?.name ?? "");
        return;
      case "task":
        // The previous node is another place.
        if (change.old !== null) this.#markTask(change.old);
        this.#markTask(change.object);
        return;
      case "network":
        this.#networks.add(change.object.id);
        // The spec may now resolve to another network, or resolve for the first time.
        for (const each of [change.object, change.old]) {
          const name = each?.spec?.annotations?.name ?? "";
          for (const target of [change.object.id, name]) {
            for (const id of this.#meetings.naming(target)) this.#services.add(id);
          }
        }
        return;
      default:
      // Not part of any view.
    }
  }

  #markTask(task: Task): void {
    const place = placeOf(task);
    if (place !== "") this.#places.set(place, task);
  }

  #markNamesakes(name: string): void {
    const units = this.#unitsOf.get(applicationName(name));
    for (const { taskId } of units?.values() ?? []) {
      const task = this.store.get("task", taskId);
      if (task !== undefined) this.#markTask(task);
    }
    for (const task of this.#hidden.values()) this.#markTask(task);
    const service = this.store.byName("service", name);
    if (service !== undefined) for (const task of this.store.tasksByService(service.id)) this.#markTask(task);
  }

  #news(): Iterable<Topic> {
    if (this.#isMarked()) this.#recompute(recomputedMax);
    if (this.#isMarked()) this.#wakers.schedule();
    void this.ready();
    const changed = this.#changed;
    this.#changed = new Set();
    return changed;
  }

  /** Recomputes up to `most` views. Services come after all units, so that each is recomputed once. */
  #recompute(most: number): void {
    if (this.#isClusterMarked) this.#recomputeCluster();
    let recomputed = 0;
    const isEnough = (): boolean => (recomputed += 1) > most;
    for (const id of this.#nodes) {
      if (isEnough()) return;
      this.#nodes.delete(id);
      const node = this.store.get("node", id);
      this.#show("node", id, node === undefined ? null : machineView(node));
    }
    do {
      for (const [place, task] of this.#places) {
        if (isEnough()) return;
        this.#places.delete(place);
        this.#recomputePlace(place, task);
      }
    } while (this.#markFirst());
    for (const id of this.#services) {
      if (isEnough()) return;
      this.#services.delete(id);
      this.#recomputeService(id);
    }
    for (const id of this.#networks) {
      if (isEnough()) return;
      this.#networks.delete(id);
      const network = this.store.get("network", id);
      const view = network === undefined ? null : relationView(network, this.#meetings.applicationsOn(id));
      this.#show("network", id, view);
    }
    this.entities.sweep(() => Array.from(this.#cursors, ({ cursor }) => cursor));
  }

  /** Marks some of the tasks from before the start; false when all are marked. */
  #markFirst(): boolean {
    for (let marked = 0; this.#first !== null && marked < recomputedMax; marked += 1) {
      const { value: task, done } = this.#first.next();
      if (done === true) this.#first = null;
      else this.#markTask(task);
    }
    return this.#places.size > 0;
  }

  #recomputeCluster(): void {
    this.#isClusterMarked = false;
    for (const cluster of this.store.all("cluster")) {
      const view = modelView(cluster);
      this.#modelUuid = view.id;
      this.#show("cluster", cluster.id, view);
    }
  }

  #recomputeService(id: string): void {
    const service = this.store.get("service", id);
    this.#show("service", id, service === undefined ? null : applicationView(service, this.#tallies.get(id) ?? {}));
    for (const networkId of this.#meetings.put(id, service)) this.#networks.add(networkId);
  }

  #recomputePlace(place: string, task: Task): void {
    const { serviceId, slot, nodeId } = task;
    const judged = judgedTask(
      isNodeBound(task)
        ? [...this.store.tasksByNode(nodeId)].filter((each) => each.serviceId === serviceId && isNodeBound(each))
        : this.store.tasksBySlot(serviceId, slot),
    );
    const service = this.store.get("service", serviceId);
    const before = this.#shown.get(`task ${place}`) as UnitView | undefined;
    let view: UnitView | null = null;
    this.#hidden.delete(place);
    if (judged !== null && this.#isHidden(judged, service !== undefined)) {
      this.#hidden.set(place, judged);
    } else if (judged !== null) {
      view = unitView(judged, service, judged.nodeId === "" ? undefined : this.store.get("node", judged.nodeId));
    }
    const { isHolder, others } = this.#claims.put(place, view?.id ?? null, task);
    for (const other of others) this.#markTask(other);
    if (!isHolder) view = null;
    this.#show("task", place, view);
    if (before !== undefined) this.#count(before, -1);
    if (view !== null) this.#count(view, 1);
    if (before !== undefined && before.application !== view?.application) this.#forgetUnit(before.application, place);
    if (view !== null) this.#rememberUnit(view, place);
    if (before?.words.workload.current !== view?.words.workload.current && service !== undefined) {
      this.#services.add(serviceId);
    }
  }

  /** F5 */
  #isHidden(task: Task, hasService: boolean): boolean {
    return !hasService && this.store.byName("service", serviceNameOf(task, undefined)) !== undefined;
  }

  #rememberUnit(view: UnitView, place: string): void {
    const units = this.#unitsOf.get(view.application);
    if (units === undefined) this.#unitsOf.set(view.application, new Map([[place, view]]));
    else units.set(place, view);
  }

  #forgetUnit(application: string, place: string): void {
    const units = this.#unitsOf.get(application);
    if (units?.delete(place) === true && units.size === 0) this.#unitsOf.delete(application);
  }

  #count({ serviceId, words }: UnitView, by: number): void {
    const { current } = words.workload;
    let tally = this.#tallies.get(serviceId);
    if (tally === undefined) this.#tallies.set(serviceId, (tally = {}));
    tally[current] = (tally[current] ?? 0) + by;
    if (tally[current] > 0) return;
    delete tally[current];
    // The last unit of a removed service is removed after it.
    if (Object.keys(tally).length === 0) this.#tallies.delete(serviceId);
  }

  #show(table: string, id: string, view: View | null): void {
    const place = `${table} ${id}`;
    const before = this.#shown.get(place);
    if (before !== undefined && before.id !== view?.id) {
      if (this.entities.remove(before.kind, before.id, place)) this.#markChanged(before, view);
      this.#annotate(before, null, place);
    }
    if (view === null) {
      this.#shown.delete(place);
      return;
    }
    this.#shown.set(place, view);
    if (this.entities.put(view, place)) this.#markChanged(view, before ?? null);
    this.#annotate(null, view, place);
  }

  #annotate(before: View | null, view: View | null, place: string): void {
    const of = view ?? before;
    if (of === null || (of.kind !== "machine" && of.kind !== "application" && of.kind !== "model")) return;
    const annotation = view === null ? null : annotationView(of);
    const id = `${of.kind}:${of.id}`;
    const isNews =
      annotation === null ? this.entities.remove("annotation", id, place) : this.entities.put(annotation, place);
    if (isNews) this.#changed.add(topics.everything).add(keyOf("annotation", id));
  }

  /** `other`: the view before or after the change. */
  #markChanged(view: View, other: View | null): void {
    const changed = this.#changed;
    changed.add(topics.everything).add(topics.kind(view.kind)).add(keyOf(view.kind, view.id));
    for (const unit of [view, other]) {
      if (unit?.kind === "unit") changed.add(topics.unitsOn(unit.machine)).add(topics.unitsOf(unit.application));
    }
  }
}
