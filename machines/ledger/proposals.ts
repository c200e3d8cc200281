/**
 * Decides what the ledger does with one Operation, given the state at the operation's turn: a Change for the log, nothing, or
 * a refusal. Pure; `machines/ledger/batch.ts` combines the changes.
 *
 * P1: an id is created once, and names are unique within a table (except for nodes and tasks).
 * P2: an update replaces exactly the version that its writer has seen.
 * P3: the observed and desired state of a task only increase, whoever writes them, and only as machines/task.machine.ts allows.
 * P4: a task gets a node once, while it is PENDING and wanted, and only a node that can take it; its cluster volumes must
 *     still exist.
 * P5: a node reports only on its own tasks, only through its current session, and only states that a node may set.
 * P6: a change without effect is not written.
 * P7: a global service has at most one wanted task of each spec version on a node.
 * P8: a decision that names its basis is applied only while that is unchanged.
 * P9: no two services publish the same port on all nodes, and no service refers to a network, secret or config that does not
 *     exist, or loses one that its update may be rolled back to. There is at most one ingress network, and exactly one while
 *     services publish ports.
 * P10: each resource has a registered kind.
 * P11: the level of the log's format never decreases, and every manager knows it: a higher one that a manager does not know
 *      is refused, and so is the record of a manager that does not know the current one.
 */
import type { Codec } from "../../proto/codec.ts";
import {
  type Basis,
  Change,
  Endpoint,
  GenericResource,
  Kind,
  NetworkAttachment,
  NodeDescription,
  Certificate,
  type NodePatch,
  type Removal,
  type StoreObject,
  TaskPatch,
  TaskState,
  VolumeAttachment,
  type Node,
  type NodeStatus,
  type Operation,
  type Extension,
  type Format,
  type Manager,
  type Network,
  type Resource,
  type Service,
  type Task,
  type TaskStatus,
} from "../../proto/gen/messages.ts";
import { meetsPlacement } from "../scheduling/constraints.ts";
import { isVolumeReady } from "../scheduling/volumes.ts";
import { mayAdvance, mayDesire, maySet } from "../task.machine.ts";
import { takesTasks } from "../node.ts";
import { isEnded, isSameStatus, isWanted, observedState, specVersionOf } from "../task.ts";
import { extensionRemovalConflict, resourceConflict, type ResourceView } from "./resource-conflicts.ts";
import {
  networkConflict,
  removalConflict,
  serviceConflict,
  type RemovedObject,
  type ServiceConflict,
  type ServiceView,
} from "../orchestration/service-conflicts.ts";
import { formatId, levelOf, managersBelow } from "../../proto/format-level.ts";
import { tableNames, type TableName } from "../../proto/table-names.ts";

type TableObject<Name extends TableName> = NonNullable<StoreObject[Name]>;

/** The state before an operation: the replica's, plus the changes before it in the same append. */
export interface StateView extends ServiceView, ResourceView {
  get<Name extends TableName>(table: Name, id: string): TableObject<Name> | undefined;
  /** Id of another object of the table with this object's name, ignoring case; undefined if the name is free or empty. */
  nameHolder<Name extends TableName>(table: Name, object: TableObject<Name>): string | undefined;
  /** The service's tasks in slot 0 that are on the node or were created for it. */
  tasksOfNode(serviceId: string, nodeId: string): Iterable<Task>;
  managers(): Iterable<Manager>;
}

/** Names of entries of runtime/error-codes.ts. */
export type RefusalCode =
  | "outOfSequence"
  | "exists"
  | "nameTaken"
  | "notFound"
  | "tooLarge"
  | "malformed"
  | "foreignTask"
  | "sessionChanged"
  | "portTaken"
  | "referenceMissing"
  | "ingressMissing"
  | "inUse"
  | "referenced"
  | "wrongLevel";

export type Refused = { readonly kind: "refused"; readonly code: RefusalCode; readonly message: string };
export type Decision =
  | { readonly kind: "change"; readonly change: Change }
  /** Not applied, but no error: its time has passed, or it would change nothing. */
  | { readonly kind: "skipped" }
  | Refused;

/** Host names need not be unique, and a task's name only identifies its slot. */
const namedTables: ReadonlySet<TableName> = new Set<TableName>([
  "service",
  "network",
  "cluster",
  "secret",
  "resource",
  "extension",
  "config",
  "volume",
]);

const skipped: Decision = { kind: "skipped" };

function refused(code: RefusalCode, message: string): Refused {
  return { kind: "refused", code, message };
}

export function decide(view: StateView, operation: Operation): Decision {
  if (operation.task !== null) {
    return restsOnPresent(view, operation.basis) ? decideTaskPatch(view, operation.task, operation.reporter) : skipped;
  }
  if (operation.node !== null) return decideNodePatch(view, operation.node, operation.sessionId);
  if (operation.create !== null) {
    return restsOnPresent(view, operation.basis)
      ? decideCreate(view, operation.create)
      : refused("outOfSequence", "creation out of sequence");
  }
  if (operation.update !== null) {
    return restsOnPresent(view, operation.basis)
      ? decideUpdate(view, operation.update)
      : refused("outOfSequence", "update out of sequence");
  }
  if (operation.remove !== null) return decideRemove(view, operation.remove, operation.version, operation.sessionId);
  if (operation.put !== null) return decidePut(view, operation.put);
  return refused("malformed", "the operation is empty");
}

type Wrapped = { readonly table: TableName; readonly object: TableObject<TableName> };

function unwrap(wrapped: StoreObject): Wrapped | Refused {
  for (const table of tableNames) {
    const object = wrapped[table];
    if (object === null) continue;
    return object.id === "" ? refused("malformed", `the ${table} has no id`) : { table, object };
  }
  return refused("malformed", "the operation has no object");
}

function decideCreate(view: StateView, wrapped: StoreObject): Decision {
  const found = unwrap(wrapped);
  if ("kind" in found) return found;
  if (view.get(found.table, found.object.id) !== undefined) return refused("exists", "object already exists");
  if (found.table === "task" && hasTwin(view, found.object as Task)) return skipped;
  return (
    refuseTakenName(view, found) ??
    refuseLevel(view, found) ??
    refuseConflict(view, found, undefined) ??
    change({ put: wrapped })
  );
}

/** P7. When a task is replaced by another of its version, its desired state is lowered first. */
function hasTwin(view: StateView, task: Task): boolean {
  if (task.slot !== 0 || task.nodeId === "" || task.serviceId === "" || !isWanted(task)) return false;
  const version = specVersionOf(task);
  for (const other of view.tasksOfNode(task.serviceId, task.nodeId)) {
    const isCandidate = isWanted(other) && !isEnded(observedState(other));
    if (isCandidate && specVersionOf(other) === version) return true;
  }
  return false;
}

/** P8 */
function restsOnPresent(view: StateView, basis: readonly Basis[]): boolean {
  for (const { kind, id, version } of basis) {
    const table = tableNames[kind - 1];
    const stored = table === undefined ? undefined : view.get(table, id);
    if (stored === undefined || versionOf(stored) !== version) return false;
  }
  return true;
}

function decideUpdate(view: StateView, wrapped: StoreObject): Decision {
  const found = unwrap(wrapped);
  if ("kind" in found) return found;
  const stored = view.get(found.table, found.object.id);
  if (stored === undefined) return refused("notFound", "object does not exist");
  if (versionOf(stored) !== versionOf(found.object)) return refused("outOfSequence", "update out of sequence");
  return (
    refuseTakenName(view, found) ??
    refuseIllegalMove(found, stored) ??
    refuseLevel(view, found) ??
    refuseConflict(view, found, stored) ??
    change({ put: wrapped })
  );
}

function decidePut(view: StateView, wrapped: StoreObject): Decision {
  const found = unwrap(wrapped);
  if ("kind" in found) return found;
  const stored = view.get(found.table, found.object.id);
  return (
    refuseTakenName(view, found) ??
    refuseIllegalMove(found, stored) ??
    refuseLevel(view, found) ??
    change({ put: wrapped })
  );
}

function decideRemove(view: StateView, removal: Removal, version: number, sessionId: string): Decision {
  const table = tableNames[removal.kind - 1];
  if (table === undefined) return refused("malformed", `unknown kind ${removal.kind}`);
  if (removal.kind === Kind.KIND_SESSION && sessionId !== "") {
    const refusal = refuseOtherSession(view, removal.id, sessionId);
    if (refusal !== null) return refusal;
  }
  const stored = view.get(table, removal.id);
  if (stored === undefined) return refused("notFound", "object does not exist");
  if (version !== 0 && versionOf(stored) !== version) return refused("outOfSequence", "update out of sequence");
  if (table === "format") return refused("wrongLevel", "the level of the log's format cannot be removed");
  // The reverse of P9 and P10.
  const isNamed = table === "network" || table === "secret" || table === "config";
  const conflict = isNamed
    ? removalConflict(view, { table, object: stored } as RemovedObject)
    : table === "extension"
      ? extensionRemovalConflict(view, stored as Extension)
      : null;
  if (conflict !== null) return refused(conflict.code, conflict.message);
  return change({ remove: removal });
}

/** P1. The texts are SwarmKit's, which has three of them. */
function refuseTakenName(view: StateView, { table, object }: Wrapped): Refused | null {
  if (!namedTables.has(table) || view.nameHolder(table, object) === undefined) return null;
  const name =
    "spec" in object ? (object.spec as { annotations: { name: string } | null } | null)?.annotations?.name : "";
  switch (table) {
    case "service":
      return refused("nameTaken", `name conflicts with an existing object: service ${name} already exists`);
    case "secret":
    case "config":
      return refused("nameTaken", `${table} ${name} already exists`);
    default:
      return refused("nameTaken", "name conflicts with an existing object");
  }
}

/** P11 */
function refuseLevel(view: StateView, { table, object }: Wrapped): Refused | null {
  if (table !== "format" && table !== "manager") return null;
  const level = levelOf(view.get("format", formatId));
  if (table === "manager") {
    if (managersBelow([object as Manager], level).length === 0) return null;
    return refused("wrongLevel", `the log's format has level ${level}, which manager ${object.id} does not know`);
  }
  const next = levelOf(object as Format);
  if (object.id !== formatId || next <= level)
    return refused("wrongLevel", `the level of the log's format can only increase from ${level}`);
  const below = managersBelow(view.managers(), next);
  if (below.length === 0) return null;
  const ids = below.map(({ id }) => id).join(", ");
  return refused(
    "wrongLevel",
    `level ${next} of the log's format is unknown to managers that run an older version: ${ids}`,
  );
}

/** P9, P10 */
function refuseConflict(
  view: StateView,
  { table, object }: Wrapped,
  stored: TableObject<TableName> | undefined,
): Refused | null {
  const conflict = conflictOf();
  return conflict === null ? null : refused(conflict.code, conflict.message);

  function conflictOf(): ServiceConflict | null {
    switch (table) {
      case "service":
        return serviceConflict(view, object as Service, (stored as Service | undefined) ?? null);
      case "network":
        return stored === undefined ? networkConflict(view, object as Network) : null;
      case "resource":
        return resourceConflict(view, object as Resource);
      default:
        return null;
    }
  }
}

/** P3 for whole tasks: the writer saw the version that it replaces, so this is a fault of the writer. */
function refuseIllegalMove({ table, object }: Wrapped, stored: TableObject<TableName> | undefined): Refused | null {
  if (table !== "task" || stored === undefined) return null;
  const [next, before] = [object as Task, stored as Task];
  const [to, from] = [observedState(next), observedState(before)];
  const isDesirable = next.desiredState === before.desiredState || mayDesire(before.desiredState, next.desiredState);
  if (isDesirable && (to === from || maySet(from, to, "anyManager"))) return null;
  return refused("malformed", "a task's state cannot decrease, nor change against its life cycle");
}

/** P5 */
function refuseOtherSession(view: StateView, nodeId: string, sessionId: string): Refused | null {
  if (view.get("session", nodeId)?.sessionId === sessionId) return null;
  return refused("sessionChanged", `session ${sessionId} is not the current one of node ${nodeId}`);
}

function decideTaskPatch(view: StateView, patch: TaskPatch, reporter: string): Decision {
  const task = view.get("task", patch.id);
  if (task === undefined) return skipped;
  if (reporter !== "" && task.nodeId !== reporter) {
    return refused("foreignTask", `task ${patch.id} does not belong to node ${reporter}`);
  }
  if (patch.nodeId !== "" && !canBeAssigned(view, task, patch)) return skipped;
  const takes = {
    status: patch.status !== null && takesStatus(task, patch.status, reporter),
    desiredState: mayDesire(task.desiredState, patch.desiredState),
    nodeId: patch.nodeId !== "" && patch.nodeId !== task.nodeId,
    networks: patch.networks.length > 0 && !isSameList(NetworkAttachment, patch.networks, task.networks),
    endpoint: patch.endpoint !== null && !isSame(Endpoint, patch.endpoint, task.endpoint),
    generic:
      patch.assignedGenericResources.length > 0 &&
      !isSameList(GenericResource, patch.assignedGenericResources, task.assignedGenericResources),
    volumes: patch.volumes.length > 0 && !isSameList(VolumeAttachment, patch.volumes, task.volumes),
  };
  const isPartlyTaken =
    takes.status ||
    takes.desiredState ||
    takes.nodeId ||
    takes.networks ||
    takes.endpoint ||
    takes.generic ||
    takes.volumes;
  if (!isPartlyTaken) return skipped;
  const isWhollyTaken = (takes.status || patch.status === null) && (takes.desiredState || patch.desiredState === 0);
  if (isWhollyTaken) return taskChange(patch);
  const fields: { -readonly [Key in keyof TaskPatch]?: TaskPatch[Key] } = { id: patch.id };
  if (takes.status) fields.status = patch.status;
  if (takes.desiredState) fields.desiredState = patch.desiredState;
  if (takes.nodeId) fields.nodeId = patch.nodeId;
  if (takes.networks) fields.networks = patch.networks;
  if (takes.endpoint) fields.endpoint = patch.endpoint;
  if (takes.generic) fields.assignedGenericResources = patch.assignedGenericResources;
  if (takes.volumes) fields.volumes = patch.volumes;
  return change({ task: TaskPatch.create(fields) });
}

/** P4 */
function canBeAssigned(view: StateView, task: Task, patch: TaskPatch): boolean {
  const { nodeId } = patch;
  if (!mayAdvance(observedState(task), TaskState.ASSIGNED, "scheduler") || !isWanted(task)) return false;
  const node = view.get("node", nodeId);
  if (node === undefined || !meetsPlacement(task.spec?.placement ?? null, node)) return false;
  for (const { id } of patch.volumes) if (!isVolumeThere(view, id)) return false;
  // A task of a global service was created for its node, and may be assigned to it even while the node takes no new tasks.
  if (task.nodeId !== "") return task.nodeId === nodeId;
  return takesTasks(node);
}

/** A volume that was released, paused or drained since it was chosen: the task is scheduled again. */
function isVolumeThere(view: StateView, id: string): boolean {
  const volume = view.get("volume", id);
  return volume !== undefined && isVolumeReady(volume);
}

/**
 * P3, P5, P6. Agents report every task again when they reconnect: a report without news is dropped here. A decision of a manager
 * that the node has overtaken is dropped, too.
 */
function takesStatus(task: Task, status: TaskStatus, reporter: string): boolean {
  if (!maySet(observedState(task), status.state, reporter === "" ? "anyManager" : "node")) return false;
  return task.status === null || !isSameStatus(status, task.status);
}

function decideNodePatch(view: StateView, patch: NodePatch, sessionId: string): Decision {
  if (sessionId !== "") {
    const refusal = refuseOtherSession(view, patch.id, sessionId);
    if (refusal !== null) return refusal;
  }
  const node = view.get("node", patch.id);
  if (node === undefined || !changesNode(node, patch)) return skipped;
  return change({ node: patch });
}

/** P6 */
function changesNode(node: Node, patch: NodePatch): boolean {
  const replacesAttachments = patch.attachments.length > 0 || patch.replaceAttachments;
  return (
    (patch.status !== null && !isSameNodeStatus(patch.status, node.status)) ||
    (patch.setRole && patch.role !== node.role) ||
    (patch.description !== null && !isSame(NodeDescription, patch.description, node.description)) ||
    (patch.certificate !== null && !isSame(Certificate, patch.certificate, node.certificate)) ||
    (replacesAttachments && !isSameList(NetworkAttachment, patch.attachments, node.attachments))
  );
}

function isSameNodeStatus(a: NodeStatus, b: NodeStatus | null): boolean {
  return b !== null && a.state === b.state && a.message === b.message && a.addr === b.addr;
}

function change(fields: Partial<Change>): Decision {
  return { kind: "change", change: Change.create(fields) };
}

/** On the hot path: set directly, not with `create`, which iterates over its argument's keys. */
function taskChange(patch: TaskPatch): Decision {
  const made = Change.create() as { -readonly [Key in keyof Change]: Change[Key] };
  made.task = patch;
  return { kind: "change", change: made };
}

function versionOf(object: TableObject<TableName>): number {
  return object.meta?.version?.index ?? 0;
}

/** Compares encodings: equal fields in the same order give equal bytes, and maps that differ only in order are rare. */
function isSame<T>(codec: Codec<T>, a: T | null, b: T | null): boolean {
  if (a === b) return true;
  if (a === null || b === null) return false;
  const [left, right] = [codec.encode(a), codec.encode(b)];
  return left.length === right.length && left.every((byte, at) => byte === right[at]);
}

function isSameList<T>(codec: Codec<T>, a: readonly T[], b: readonly T[]): boolean {
  return a.length === b.length && a.every((item, at) => isSame(codec, item, b[at] ?? null));
}
