/**
 * The enforcers: they reject tasks that may no longer stay where they are, because their node has changed or a volume is
 * drained, so that they are replaced elsewhere. The chart decides when to check, by the reconcile loop (`machines/reconcile.ts`);
 * `evictions` decides which tasks are evicted.
 *
 * F1: a task that meets its placement and has its reservations is never evicted.
 * F2: every task of a node is judged, independently of the others.
 * F3: if a node has less than its tasks have reserved, the fewest tasks that free enough are evicted; on a tie the newest.
 * F4: paused and drained nodes are skipped: the former keep their tasks, and the latter lose all of them anyway.
 * F5: while a rollout moves tasks to nodes that meet new constraints, only the rollout moves them, at its own pace. While it is
 *     paused nothing moves them: a crashed task is restarted with its old spec (V6), and would be evicted again.
 */
import {
  TaskStatus,
  TaskState,
  VolumeSpec_VolumeAvailability,
  type GenericResource,
  type Node,
  type Placement,
  type Service,
  type Task,
  type Timestamp,
  type Volume,
} from "../../proto/gen/messages.ts";
import { deciding, gathering, judged, reconciling, resting, type ReconcileContext } from "../reconcile.ts";
import { isRollingOut } from "./rollout/states.ts";
import { meetsPlacement } from "../scheduling/constraints.ts";
import { meetsPlatforms } from "../scheduling/platforms.ts";
import { isActive, isLive } from "../node.ts";
import { isWanted, observedState } from "../task.ts";
import { mayAdvance } from "../task.machine.ts";
import { timeMs } from "../../proto/time.ts";

/** Woken by a node whose change affects placement or reservations, and by a volume that is being drained. */
export const enforcerMachine = reconciling<ReconcileContext<{ readonly isPartial: boolean }>>().createMachine({
  id: "enforcer",
  context: { verdict: { isPartial: false }, isTouched: false },
  initial: "resting",
  states: {
    resting: resting({
      description: "Every task is on a node where it may run.",
      meta: {
        waitingFor: "nothing: no task must leave its node",
        wokenBy: { "work.arrived": "a change of a node, or a volume that is being drained" },
      },
    }),
    gathering: gathering({ description: "A node or a volume changed; gathering more from the same commits." }),
    deciding: deciding({
      description:
        "Checking every task affected by the changes, and evicting those that may not stay. F1, F2, F3, F4, F5",
    }),
    judged: judged([{ target: "resting" }]),
  },
});

/** SwarmKit's texts. In a task's status, they show later that the task did not fail. */
const constraintMessage = "task rejected by constraint enforcer";
const volumeMessage = "task rejected by volume enforcer";

export type Eviction = "node" | "volume";

/** A status shared by many tasks of one round. */
export function evictionStatus(eviction: Eviction, timestamp: Timestamp): TaskStatus {
  return eviction === "node"
    ? TaskStatus.create({
        state: TaskState.REJECTED,
        message: constraintMessage,
        err: "assigned node no longer meets constraints",
        timestamp,
        appliedAt: timestamp,
      })
    : TaskStatus.create({
        state: TaskState.REJECTED,
        message: volumeMessage,
        err: "attached to volume which is being drained",
        timestamp,
        appliedAt: timestamp,
      });
}

export function wasEvicted({ status }: Task): boolean {
  return (
    status?.state === TaskState.REJECTED && (status.message === constraintMessage || status.message === volumeMessage)
  );
}

/** Whether enforcers apply: the task is wanted, and on a node that it may be evicted from. */
function isSubject(task: Task): boolean {
  return isWanted(task) && mayAdvance(observedState(task), TaskState.REJECTED, "manager");
}

/** F4. A DOWN node has already lost its tasks. */
function isEnforced(node: Node): boolean {
  return isActive(node) && isLive(node) && node.description !== null;
}

/** Whether a change of a node affects the enforcer. */
export function concernsEnforcer(old: Node | null, node: Node): boolean {
  return (
    old === null ||
    old.spec !== node.spec ||
    old.role !== node.role ||
    old.description !== node.description ||
    old.status?.addr !== node.status?.addr
  );
}

/** The tasks of a node to evict, oldest first. */
export function evictions(
  node: Node,
  tasks: Iterable<Task>,
  serviceOf: (id: string) => Service | undefined,
): readonly Task[] {
  if (!isEnforced(node)) return [];
  const gone: Task[] = [];
  const rest: Task[] = [];
  const offered = namedOf(node.description?.resources?.generic ?? []);
  for (const task of tasks) {
    if (!isSubject(task)) continue;
    const stays = mayStay(task, node, serviceOf) && hasItsNamed(task, offered);
    (stays ? rest : gone).push(task);
  }
  return [...gone, ...surplus(node, rest)].sort(byAge);
}

/**
 * The service's current placement counts: a change of only the placement leaves tasks that meet it in place, with the spec
 * that they were created from.
 */
function mayStay(task: Task, node: Node, serviceOf: (id: string) => Service | undefined): boolean {
  const own = task.spec?.placement ?? null;
  const service = serviceOf(task.serviceId);
  if (service === undefined) return meetsWhere(own, node);
  if (meetsWhere(service.spec?.task?.placement ?? null, node)) return true;
  // F5
  return isRollingOut(service) && meetsWhere(own, node);
}

function meetsWhere(placement: Placement | null, node: Node): boolean {
  return meetsPlacement(placement, node) && meetsPlatforms(placement, node);
}

/** `kind=value` of each named resource. */
function namedOf(generic: readonly GenericResource[]): ReadonlySet<string> {
  const names = new Set<string>();
  for (const { namedResourceSpec: named } of generic) if (named !== null) names.add(`${named.kind}=${named.value}`);
  return names;
}

/** Whether the node still offers the named resources assigned to the task; others cannot replace them. */
function hasItsNamed(task: Task, offered: ReadonlySet<string>): boolean {
  return task.assignedGenericResources.every(
    ({ namedResourceSpec: named }) => named === null || offered.has(`${named.kind}=${named.value}`),
  );
}

/** By kind of resource: `cpus`, `memory`, and `generic/KIND` for discrete ones. */
type Amounts = ReadonlyMap<string, number>;

function reservedBy(task: Task): Amounts {
  const reserved = task.spec?.resources?.reservations ?? null;
  const amounts = new Map<string, number>();
  if ((reserved?.nanoCpus ?? 0) > 0) amounts.set("cpus", reserved?.nanoCpus ?? 0);
  if ((reserved?.memoryBytes ?? 0) > 0) amounts.set("memory", reserved?.memoryBytes ?? 0);
  for (const { discreteResourceSpec: discrete } of task.assignedGenericResources) {
    if (discrete === null) continue;
    const kind = `generic/${discrete.kind}`;
    amounts.set(kind, (amounts.get(kind) ?? 0) + discrete.value);
  }
  return amounts;
}

/** Null: the node has never reported its resources. */
function offeredBy(node: Node): Amounts | null {
  const resources = node.description?.resources ?? null;
  if (resources === null) return null;
  const amounts = new Map([
    ["cpus", resources.nanoCpus],
    ["memory", resources.memoryBytes],
  ]);
  for (const { discreteResourceSpec: discrete } of resources.generic) {
    if (discrete === null) continue;
    const kind = `generic/${discrete.kind}`;
    amounts.set(kind, (amounts.get(kind) ?? 0) + discrete.value);
  }
  return amounts;
}

interface Tenant {
  readonly task: Task;
  readonly amounts: Amounts;
}

/** F3. Stopping tasks do not count: they free their resources anyway. */
function surplus(node: Node, tasks: readonly Task[]): readonly Task[] {
  const offered = offeredBy(node);
  if (offered === null) return [];
  const reserved = new Map<string, number>();
  const tenants: Tenant[] = [];
  for (const task of tasks) {
    const amounts = reservedBy(task);
    if (amounts.size === 0) continue;
    tenants.push({ task, amounts });
    for (const [kind, amount] of amounts) reserved.set(kind, (reserved.get(kind) ?? 0) + amount);
  }
  // Sorted by name: floating-point sums depend on the order, and every leader must decide the same.
  const short = [...reserved]
    .map(([kind, amount]) => [kind, amount - (offered.get(kind) ?? 0)] as const)
    .filter(([, amount]) => amount > 0)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return short.length === 0 ? [] : makeRoom(tenants, new Map(short));
}

/**
 * Greedily chooses the tenant that frees the largest part of what is missing; for one kind of resource, that gives the fewest
 * tasks. Then spares, oldest first, those that need not be evicted after all.
 */
function makeRoom(tenants: readonly Tenant[], missing: Amounts): readonly Task[] {
  const left = new Map(missing);
  const candidates = [...tenants].sort((a, b) => byAge(b.task, a.task));
  const chosen: Tenant[] = [];
  while (left.size > 0) {
    let best: Tenant | null = null;
    let most = 0;
    for (const tenant of candidates) {
      const relief = chosen.includes(tenant) ? 0 : reliefOf(tenant, left);
      if (relief <= most) continue;
      best = tenant;
      most = relief;
    }
    // Cannot happen: some tenant has reserved what is missing.
    if (best === null) break;
    chosen.push(best);
    take(left, best.amounts);
  }
  const needed = new Set(chosen);
  for (const tenant of [...chosen].sort((a, b) => byAge(a.task, b.task))) {
    needed.delete(tenant);
    if (!covers(needed, missing)) needed.add(tenant);
  }
  return [...needed].map(({ task }) => task);
}

/** How much of what is missing the tenant would free: the sum of its fractions of each kind. */
function reliefOf({ amounts }: Tenant, left: Amounts): number {
  let relief = 0;
  for (const [kind, short] of left) relief += Math.min(amounts.get(kind) ?? 0, short) / short;
  return relief;
}

function take(left: Map<string, number>, amounts: Amounts): void {
  for (const [kind, amount] of amounts) {
    const short = left.get(kind);
    if (short === undefined) continue;
    if (short > amount) left.set(kind, short - amount);
    else left.delete(kind);
  }
}

function covers(chosen: Iterable<Tenant>, missing: Amounts): boolean {
  const left = new Map(missing);
  for (const { amounts } of chosen) take(left, amounts);
  return left.size === 0;
}

/** Oldest first; on a tie, by id. */
function byAge(a: Task, b: Task): number {
  return timeMs(a.meta?.createdAt ?? null) - timeMs(b.meta?.createdAt ?? null) || (a.id < b.id ? -1 : 1);
}

export function isDrained(volume: Volume): boolean {
  return volume.spec?.availability === VolumeSpec_VolumeAvailability.DRAIN;
}

/** Whether one of the task's volumes is being drained. */
export function isOnDrained(task: Task, volumeOf: (id: string) => Volume | undefined): boolean {
  if (task.volumes.length === 0 || !isSubject(task)) return false;
  return task.volumes.some(({ id }) => {
    const volume = volumeOf(id);
    return volume !== undefined && isDrained(volume);
  });
}
