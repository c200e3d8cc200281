// Assignments that would crash a stock engine are not sent to it.
import test from "ava";
import {
  Annotations,
  Any,
  ContainerSpec,
  Driver,
  EncryptionKey,
  GenericRuntimeSpec,
  IPAMOptions,
  Network,
  NetworkAttachment,
  NetworkSpec,
  Node,
  Task,
  TaskSpec,
} from "../../proto/gen/messages.ts";
import { sendableKeys, sendableNode, taskFlaw } from "../../machines/orchestration/task-check.ts";

const good = Task.create({
  id: "t1",
  nodeId: "n1",
  serviceAnnotations: Annotations.create({ name: "web" }),
  spec: TaskSpec.create({ container: ContainerSpec.create({ image: "alpine:3" }) }),
});

const overlay = Network.create({
  id: "net1",
  spec: NetworkSpec.create({ annotations: Annotations.create({ name: "net1" }) }),
  driverState: Driver.create({ name: "overlay" }),
  ipam: IPAMOptions.create({ driver: Driver.create({ name: "default" }) }),
});

function attached(fields: Partial<Network> | null): Task {
  const network = fields === null ? null : Network.patch(overlay, fields);
  return Task.patch(good, { networks: [NetworkAttachment.create({ network })] });
}

test("the smallest task that an engine runs is valid", (t) => {
  t.is(taskFlaw(good), null);
  t.is(taskFlaw(attached({})), null);
  t.is(taskFlaw(attached({ ipam: null })), null);
});

const flawed: readonly (readonly [string, Task, RegExp])[] = [
  ["no spec", Task.patch(good, { spec: null }), /no spec/],
  ["no runtime", Task.patch(good, { spec: TaskSpec.create() }), /no runtime/],
  [
    "a generic runtime without payload",
    Task.patch(good, { spec: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "exec" }) }) }),
    /no payload/,
  ],
  ["a container without any name", Task.patch(good, { serviceAnnotations: null }), /has a name/],
  ["an attachment without network", attached(null), /no network/],
  ["an unallocated network", attached({ driverState: null }), /net1 has no driver state/],
  ["IPAM options without driver", attached({ ipam: IPAMOptions.create() }), /without a driver/],
];
for (const [what, task, text] of flawed) {
  test(`a task with ${what} is held back`, (t) => {
    t.regex(taskFlaw(task) ?? "", text);
  });
}

test("a generic task with a payload needs no container name", (t) => {
  const generic = GenericRuntimeSpec.create({ kind: "exec", payload: Any.create() });
  t.is(taskFlaw(Task.create({ id: "t", spec: TaskSpec.create({ generic }) })), null);
});

function keys(gossip: number, ipsec: number): EncryptionKey[] {
  return ["networking:gossip", "networking:ipsec"].flatMap((subsystem, which) =>
    Array.from({ length: [gossip, ipsec][which] ?? 0 }, (_, at) =>
      EncryptionKey.create({ subsystem, key: new Uint8Array(16), lamportTime: 10 * which + at }),
    ),
  );
}

test("network keys are sent as three of each subsystem, or not at all", (t) => {
  t.is(sendableKeys(keys(3, 3)).length, 6);
  t.deepEqual(sendableKeys(keys(3, 0)), []);
  t.deepEqual(sendableKeys(keys(2, 3)), []);
  t.deepEqual(sendableKeys(keys(4, 3)), []);
  t.deepEqual(
    sendableKeys(keys(3, 3).map((key) => EncryptionKey.patch(key, { lamportTime: 1 }))),
    [],
    "changes are recognised only by the times",
  );
});

test("a node is sent without an unallocated ingress attachment", (t) => {
  const ingress = Network.patch(overlay, { spec: NetworkSpec.create({ ingress: true }) });
  const bad = NetworkAttachment.create({ network: Network.patch(ingress, { driverState: null }) });
  const fine = NetworkAttachment.create({ network: ingress });
  const node = Node.create({ id: "n1", attachments: [bad, fine] });
  t.deepEqual(sendableNode(node).attachments, [fine]);
});
