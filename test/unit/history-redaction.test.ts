// The history that a read-only user gets: it shows nothing that the objects themselves hide.
import test from "ava";
import type protobuf from "protobufjs";
import { notShown, shownTo } from "../../edges/grpc/redaction.ts";
import { differenceOf } from "../../machines/history/fields.ts";
import { toldKinds, type ToldKind } from "../../machines/history/objects.ts";
import type { Codec } from "../../proto/codec.ts";
import {
  Any,
  Cluster,
  Config,
  ExecSpec,
  GenericRuntimeSpec,
  HistoryEntry,
  Network,
  Node,
  Secret,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  Volume,
} from "../../proto/gen/messages.ts";
import { messageType } from "../support/arbitrary-message.ts";

const marker = "NAME=hunter2";
const codecs = {
  node: Node,
  service: Service,
  network: Network,
  task: Task,
  cluster: Cluster,
  secret: Secret,
  config: Config,
  volume: Volume,
} as unknown as Readonly<Record<ToldKind, Codec<object>>>;

interface Leaf {
  readonly path: string;
  readonly object: object;
}

/** One object per text field of the type and of the types in it, which has only this field. */
function leavesOf(type: protobuf.Type, above: readonly protobuf.Type[] = []): readonly Leaf[] {
  return type.fieldsArray.flatMap((field): readonly Leaf[] => {
    const wrap = (value: unknown): object => ({
      [field.name]: field.map ? { option: value } : field.repeated ? [value] : value,
    });
    const inner = field.resolvedType;
    if (inner === null) return field.type === "string" ? [{ path: field.name, object: wrap(marker) }] : [];
    if (!("fieldsArray" in inner) || above.includes(inner)) return [];
    return leavesOf(inner, [...above, type]).map(({ object, path }) => ({
      path: `${field.name}.${path}`,
      object: wrap(object),
    }));
  });
}

function made(typeName: string, object: object): Uint8Array {
  const type = messageType(typeName);
  return type.encode(type.fromObject(object)).finish();
}

/** The new values in the history of a change, as a read-only user sees them. */
function historyOf(kind: ToldKind, old: object, object: object): readonly string[] {
  const { fields } = differenceOf(kind, old as never, object as never);
  return shownTo("read-only", HistoryEntry.create({ kind, fields: [...fields] })).fields.map((change) => change.new);
}

test("RD2: the history hides from read-only users what they cannot see in the object itself, for each text field", (t) => {
  const hidden: string[] = [];
  for (const kind of toldKinds) {
    const codec = codecs[kind];
    for (const { object, path } of leavesOf(messageType(codec.typeName))) {
      const message = codec.decode(made(codec.typeName, object));
      if (JSON.stringify(codec.toJson(shownTo("read-only", message))).includes(marker)) continue;
      const values = historyOf(kind, codec.create(), message);
      if (values.length > 0) hidden.push(`${kind} ${path}`);
      for (const value of values) t.is(value, notShown, `${kind} ${path}`);
    }
  }
  t.true(hidden.length >= 11, hidden.join());
});

test("RD2: the history hides payloads of drivers, environments of processes and external CAs from read-only users", (t) => {
  const running = (kind: string, value: Uint8Array): object =>
    Service.create({
      spec: ServiceSpec.create({
        task: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind, payload: Any.create({ value }) }) }),
      }),
    });
  const env = [marker];
  const authority = { spec: { caConfig: { externalCas: [{ url: "https://ca.example" }] } } };
  const changes: readonly (readonly [ToldKind, object, object])[] = [
    ["service", running("exec", new Uint8Array()), running("exec", ExecSpec.encode(ExecSpec.create({ env })))],
    ["service", running("shell", new Uint8Array()), running("shell", Buffer.from(marker))],
    ["cluster", Cluster.create(), Cluster.decode(made(Cluster.typeName, authority))],
  ];
  for (const [kind, old, now] of changes) t.deepEqual(historyOf(kind, old, now), [notShown], kind);
});
