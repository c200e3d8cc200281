/**
 * Applies a transaction's patches to an object: used by the replica that applies them and by the ledger that validates them.
 */
import { Node, Task, type Meta, type NodePatch, type TaskPatch } from "../../proto/gen/messages.ts";

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Shared by all tasks: a decoder creates three empty lists per task, some 100 bytes that are never filled. */
const empty: readonly never[] = Object.freeze([]);

/**
 * Creates a task with the fields of another, always set in the same order: one hidden class for all tasks keeps access to them
 * fast. This runs for each change of each task. It is a constructor that sets the fields itself, because V8 then reserves space
 * for all of them in the object; fields set from outside mostly go into a second one (32 bytes more per task).
 */
const StoredTask = function (this: Mutable<Task>, task: Task, meta: Meta) {
  this.id = task.id;
  this.meta = meta;
  this.spec = task.spec;
  this.serviceId = task.serviceId;
  this.slot = task.slot;
  this.nodeId = task.nodeId;
  this.serviceAnnotations = task.serviceAnnotations;
  this.status = task.status;
  this.desiredState = task.desiredState;
  this.endpoint = task.endpoint;
  this.specVersion = task.specVersion;
  this.networks = task.networks.length === 0 ? empty : task.networks;
  this.assignedGenericResources = task.assignedGenericResources.length === 0 ? empty : task.assignedGenericResources;
  this.volumes = task.volumes.length === 0 ? empty : task.volumes;
} as unknown as new (task: Task, meta: Meta) => Mutable<Task>;
StoredTask.prototype = Object.getPrototypeOf(Task.create());

/** A task with the same fields. */
export function copyTask(task: Task, meta: Meta): Mutable<Task> {
  const copy = new StoredTask(task, meta);
  // Rare fields only if present: an own field costs 8 bytes in each of 100,000 tasks.
  if (task.annotations !== null) copy.annotations = task.annotations;
  if (task.logDriver !== null) copy.logDriver = task.logDriver;
  if (task.jobIteration !== null) copy.jobIteration = task.jobIteration;
  return copy;
}

/** Copies each field that the patch contains. Which fields are allowed was decided before the patch entered the log. */
export function patchTask(task: Task, patch: TaskPatch, meta: Meta): Task {
  const next = copyTask(task, meta);
  if (patch.status !== null) next.status = patch.status;
  if (patch.desiredState !== 0) next.desiredState = patch.desiredState as Task["desiredState"];
  if (patch.nodeId !== "") next.nodeId = patch.nodeId;
  if (patch.networks.length > 0) next.networks = patch.networks;
  if (patch.endpoint !== null) next.endpoint = patch.endpoint;
  if (patch.assignedGenericResources.length > 0) next.assignedGenericResources = patch.assignedGenericResources;
  if (patch.volumes.length > 0) next.volumes = patch.volumes;
  return next;
}

export function patchNode(node: Node, patch: NodePatch, meta: Meta): Node {
  const fields: Partial<Mutable<Node>> = { meta };
  if (patch.status !== null) fields.status = patch.status;
  if (patch.description !== null) fields.description = patch.description;
  if (patch.certificate !== null) fields.certificate = patch.certificate;
  if (patch.attachments.length > 0 || patch.replaceAttachments) fields.attachments = patch.attachments;
  if (patch.setRole) fields.role = patch.role;
  return Node.patch(node, fields);
}
