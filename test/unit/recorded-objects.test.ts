// The fields of the cluster's objects that a recording has: only those of a list, whatever users and nodes write.
import test from "ava";
import type protobuf from "protobufjs";
import { notRecorded, recordedTransaction } from "../../machines/inspection/recorded-objects.ts";
import {
  Change,
  Kind,
  Removal,
  Rollout,
  Service,
  StoreObject,
  Task,
  TaskPatch,
  TaskState,
  TaskStatus,
  Transaction,
  UpdateStatus,
  User,
} from "../../proto/gen/messages.ts";
import { messageType } from "../support/arbitrary-message.ts";

const canary = "canary-55d1";

/** By message, the fields with texts that are recorded. Names, ids, addresses, images and kinds; texts that managers write. */
const recorded = `
  Annotations.name Certificate.cn Cluster.defaultAddressPool Cluster.id Config.id ConfigReference.configId ConfigReference.configName
  ContainerSpec.image ContainerStatus.containerId DiscreteGenericResource.kind Driver.name EngineDescription.engineVersion Extension.id
  Format.id GenericRuntimeSpec.kind IPAMConfig.gateway IPAMConfig.range IPAMConfig.subnet Manager.addr Manager.addresses Manager.id ManagerStatus.addr
  NamedGenericResource.kind NamedGenericResource.value Network.id NetworkAttachment.addresses NetworkAttachmentConfig.addresses
  NetworkAttachmentConfig.target NetworkAttachmentSpec.containerId NetworkSpec.network Node.id NodeDescription.hostname NodePatch.id
  NodeStatus.addr NodeStatus.message Platform.architecture Platform.os PluginDescription.name PluginDescription.type PortConfig.name
  Removal.id Resource.id Resource.kind ResourceReference.resourceId Rollout.batch Rollout.blocker Rollout.failedTasks Rollout.id Secret.id
  SecretReference.secretId SecretReference.secretName Service.id Session.id Session.managerId Task.id Task.nodeId Task.serviceId
  TaskPatch.id TaskPatch.nodeId TaskStatus.appliedBy TaskStatus.err TaskStatus.message Transaction.writer UpdateStatus.message
  VirtualIP.addr VirtualIP.networkId Volume.id VolumeAttachment.id VolumeAttachment.source VolumeInfo.volumeId VolumePublishStatus.nodeId
  VolumeSpec.group`
  .trim()
  .split(/\s+/);

interface Leaf {
  /** Such as \`Annotations.name\`. */
  readonly name: string;
  readonly path: string;
  readonly fields: object;
}

/** For each text or bytes in the type and in the types in it: fields with the canary there, and nowhere else. */
function leavesOf(type: protobuf.Type, above: readonly protobuf.Type[] = []): readonly Leaf[] {
  return type.fieldsArray.flatMap((field): readonly Leaf[] => {
    const wrap = (value: unknown): object => ({ [field.name]: field.repeated ? [value] : value });
    const inner = field.resolvedType;
    const name = `${type.name}.${field.name}`;
    if (field.map) {
      const value = inner === null ? canary : {};
      return [{ name, path: field.name, fields: { [field.name]: { [canary]: value } } }];
    }
    if (inner === null) {
      if (field.type === "string") return [{ name, path: field.name, fields: wrap(canary) }];
      if (field.type === "bytes") return [{ name, path: field.name, fields: wrap(Buffer.from(canary)) }];
      return [];
    }
    if (!("fieldsArray" in inner) || above.includes(inner)) return [];
    return leavesOf(inner, [...above, type]).map(({ fields, name: inside, path }) => ({
      name: inside,
      path: `${field.name}.${path}`,
      fields: wrap(fields),
    }));
  });
}

const type = messageType("muster.v1.Transaction");

function isShown(fields: object): boolean {
  const whole = Transaction.decode(type.encode(type.create(fields)).finish());
  return Buffer.from(Transaction.encode(recordedTransaction(whole))).includes(canary);
}

test("RO1: only the listed texts of all kinds of objects are recorded", (t) => {
  const leaves = leavesOf(type);
  t.true(leaves.length > 600, `${leaves.length} texts`);
  const shown = leaves.filter(({ fields }) => isShown(fields));
  t.deepEqual([...new Set(shown.map(({ name }) => name))].toSorted(), recorded);
  // A user, with everything that belongs to it, is in no recording.
  t.deepEqual(
    shown.map(({ path }) => path).filter((path) => path.startsWith("changes.put.user")),
    [],
  );
});

function changed(...changes: readonly Partial<Change>[]): Transaction {
  return recordedTransaction(Transaction.create({ changes: changes.map((each) => Change.create(each)) }));
}

test("RO3: the texts of a status that a node may have written are left out, and those of managers are not", (t) => {
  const status = (state: TaskState): TaskStatus => TaskStatus.create({ state, message: canary, err: canary });
  const shown = (state: TaskState): readonly (readonly string[])[] => {
    const { changes } = changed(
      { task: TaskPatch.create({ id: "t1", status: status(state) }) },
      { put: StoreObject.create({ task: Task.create({ id: "t1", status: status(state) }) }) },
    );
    const { statuses } = recordedTransaction(Transaction.create({ statuses: [status(state)] }));
    return [changes[0]?.task?.status, changes[1]?.put?.task?.status, statuses[0]].map((each) => [
      each?.message ?? "",
      each?.err ?? "",
    ]);
  };
  for (const state of [TaskState.NEW, TaskState.PENDING, TaskState.ASSIGNED])
    t.deepEqual(
      shown(state),
      Array.from({ length: 3 }, () => [canary, canary]),
    );
  for (const state of Object.values(TaskState).filter((each) => each > TaskState.ASSIGNED))
    t.deepEqual(
      shown(state),
      Array.from({ length: 3 }, () => ["", notRecorded]),
    );
  const fine = changed({ task: TaskPatch.create({ status: TaskStatus.create({ state: TaskState.RUNNING }) }) });
  t.is(fine.changes[0]?.task?.status?.err, "", "no error is not an error that is left out");
});

test("RO3: a rollout's text ends before the error of a task", (t) => {
  const shown = (message: string): string => {
    const { changes } = changed(
      { put: StoreObject.create({ service: Service.create({ updateStatus: UpdateStatus.create({ message }) }) }) },
      { put: StoreObject.create({ rollout: Rollout.create({ blocker: message }) }) },
    );
    const text = changes[0]?.put?.service?.updateStatus?.message ?? "";
    t.is(changes[1]?.put?.rollout?.blocker, text);
    return text;
  };
  const pending = "update in progress; waiting for task t1 (slot 1), PENDING: no suitable node (2 nodes not available)";
  t.is(shown(pending), pending);
  t.is(
    shown(`update in progress; waiting for task t1 (slot 1), FAILED: starting: ${canary}\n; ${canary}`),
    `update in progress; waiting for task t1 (slot 1), FAILED: ${notRecorded}`,
  );
  t.is(shown(`task t1 (node n1), STARTING: ${canary}`), `task t1 (node n1), STARTING: ${notRecorded}`);
  const paused = "update paused due to failure or early termination of task t1";
  t.is(shown(`${paused}: ${canary}; it cannot be rolled back`), `${paused}: ${notRecorded}`);
  t.is(shown(paused), paused);
});

test("RO2: changes of users are left out, and all other changes stay in their order", (t) => {
  const { changes } = changed(
    { put: StoreObject.create({ user: User.create({ id: "ada" }) }) },
    { remove: Removal.create({ kind: Kind.KIND_SERVICE, id: "s1" }) },
    { remove: Removal.create({ kind: Kind.KIND_USER, id: "ada" }) },
    { put: StoreObject.create({ task: Task.create({ id: "t1" }) }), spec: 1 },
    { task: TaskPatch.create({ id: "t1" }), status: 2 },
  );
  t.deepEqual(
    changes.map(({ put, remove, spec, status, task }) => [put?.task?.id, remove?.id, task?.id, spec, status]),
    [
      [undefined, "s1", undefined, 0, 0],
      ["t1", undefined, undefined, 1, 0],
      [undefined, undefined, "t1", 0, 2],
    ],
  );
});
