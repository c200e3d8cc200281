/**
 * Numbers of nodes, tasks, sessions and other objects for `/metrics`, for example for alerts on nodes that are down. Every manager
 * shows its own replica's objects. Nodes and tasks are counted once, then updated from each commit; gauges are written when read.
 * Started only if they can be read.
 */
import { NodeStatus_State, TaskState, type Node, type Task } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import { tableNames } from "../../proto/table-names.ts";
import type { PrometheusMetrics } from "../../runtime/telemetry/metrics.ts";
import type { SessionInfo } from "../dispatcher/dispatcher.ts";
import type { Running } from "../environment.ts";

/** Number of objects in each state, by the state's number. */
class StateCounts {
  readonly #counts = new Map<number, number>();
  readonly #names: readonly (readonly [number, string])[];

  /** Every state of `states` is reported from the start, so that an alert finds 0 rather than nothing. */
  constructor(states: Readonly<Record<string, number>>) {
    this.#names = Object.entries(states).map(([name, state]) => [state, name.toLowerCase()]);
  }

  move(from: number | null, to: number | null): void {
    if (from === to) return;
    if (from !== null) this.#counts.set(from, (this.#counts.get(from) ?? 0) - 1);
    if (to !== null) this.#counts.set(to, (this.#counts.get(to) ?? 0) + 1);
  }

  forEach(tell: (state: string, count: number) => void): void {
    for (const [state, name] of this.#names) tell(name, this.#counts.get(state) ?? 0);
  }
}

function stateOf(object: Node | Task): number {
  return object.status?.state ?? 0;
}

/** `sessions`: those that this manager holds. */
export function startStateGauges(
  store: Store,
  sessions: () => Iterable<Pick<SessionInfo, "state">>,
  metrics: Pick<PrometheusMetrics, "gauge" | "onExpose">,
): Running {
  const nodes = new StateCounts(NodeStatus_State);
  const tasks = new StateCounts(TaskState);
  for (const node of store.all("node")) nodes.move(null, stateOf(node));
  for (const task of store.all("task")) tasks.move(null, stateOf(task));
  const watching = store.watch(({ changes }) => {
    for (const { table, action, object, old } of changes) {
      if (table !== "task" && table !== "node") continue;
      const counts = table === "task" ? tasks : nodes;
      counts.move(old === null ? null : stateOf(old), action === "remove" ? null : stateOf(object));
    }
  });

  const nodeGauge = metrics.gauge("muster_nodes", "Nodes of the cluster, by state.");
  const taskGauge = metrics.gauge("muster_tasks", "Tasks in the store, by observed state.");
  const objectGauge = metrics.gauge("muster_objects", "Objects of the cluster, by kind.");
  const sessionGauge = metrics.gauge("muster_session_states", "Sessions of this manager, by state.");
  const inState = new Map<string, number>();
  const telling = metrics.onExpose(() => {
    nodes.forEach((state, count) => nodeGauge.set(count, { state }));
    tasks.forEach((state, count) => taskGauge.set(count, { state }));
    for (const kind of tableNames) objectGauge.set(store.count(kind), { kind });
    // States without sessions any more are at 0.
    for (const state of inState.keys()) inState.set(state, 0);
    for (const { state } of sessions()) inState.set(state, (inState.get(state) ?? 0) + 1);
    for (const [state, count] of inState) sessionGauge.set(count, { state });
  });
  return {
    stop: () => {
      watching.unsubscribe();
      telling.unsubscribe();
    },
  };
}
