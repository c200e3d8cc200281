import test from "ava";
import fc from "fast-check";
import {
  isWanted,
  watchedKinds,
  watchFilter,
  type WatchedChange,
  type WatchFilter,
} from "../../machines/watch/filter.ts";
import { WatchIndex } from "../../machines/watch/subscribers.ts";
import { selectors, type SelectorSort, type WatchedObject } from "../../machines/watch/selectors.ts";
import {
  Annotations,
  Cluster,
  ClusterSpec,
  Config,
  ConfigReference,
  ConfigSpec,
  ContainerSpec,
  Endpoint,
  Endpoint_VirtualIP,
  Extension,
  IndexEntry,
  Network,
  NetworkAttachment,
  NetworkAttachmentConfig,
  NetworkSpec,
  Node,
  NodeDescription,
  NodeRole,
  NodeSpec,
  NodeSpec_Membership,
  Resource,
  Secret,
  SecretReference,
  SecretSpec,
  SelectBy,
  SelectByCustom,
  SelectBySlot,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  Volume,
  VolumeSpec,
  WatchActionKind,
  WatchRequest_WatchEntry,
} from "../../proto/gen/messages.ts";

const customKind = "backup";
const kinds = [...watchedKinds, customKind] as const;
const isResourceKind = (kind: string): boolean => kind === customKind;

const { WATCH_ACTION_CREATE: create, WATCH_ACTION_UPDATE: update, WATCH_ACTION_REMOVE: remove } = WatchActionKind;
const actions = [create, update, remove] as const;

const annotations = Annotations.create({ name: "web", indices: [IndexEntry.create({ key: "team", val: "blue" })] });
const spec = { annotations };
const taskSpec = TaskSpec.create({
  networks: [NetworkAttachmentConfig.create({ target: "net1" })],
  container: ContainerSpec.create({
    secrets: [SecretReference.create({ secretId: "sec1" })],
    configs: [ConfigReference.create({ configId: "con1" })],
  }),
});

/** For each kind, an object that matches everything in `fitting`, where it applies at all. */
const samples: Readonly<Record<string, WatchedObject>> = {
  node: Node.create({
    id: "obj1",
    spec: NodeSpec.create({ ...spec, membership: NodeSpec_Membership.ACCEPTED }),
    description: NodeDescription.create({ hostname: "web" }),
    role: NodeRole.MANAGER,
  }),
  service: Service.create({ id: "obj1", spec: ServiceSpec.create({ ...spec, task: taskSpec }) }),
  network: Network.create({ id: "obj1", spec: NetworkSpec.create(spec) }),
  task: Task.create({
    id: "obj1",
    annotations,
    spec: taskSpec,
    serviceId: "svc1",
    nodeId: "nod1",
    slot: 3,
    desiredState: TaskState.RUNNING,
  }),
  cluster: Cluster.create({ id: "obj1", spec: ClusterSpec.create(spec) }),
  secret: Secret.create({ id: "obj1", spec: SecretSpec.create(spec) }),
  config: Config.create({ id: "obj1", spec: ConfigSpec.create(spec) }),
  extension: Extension.create({ id: "obj1", annotations }),
  volume: Volume.create({ id: "obj1", spec: VolumeSpec.create(spec) }),
  resource: Resource.create({ id: "obj1", annotations, kind: "backup" }),
  [customKind]: Resource.create({ id: "obj1", annotations, kind: "backup" }),
};

const slot = (serviceId: string, number: number) => ({ slot: SelectBySlot.create({ serviceId, slot: number }) });
const byIndex = (index: string, value: string) => SelectByCustom.create({ index, value });

interface Row {
  /** Null: all of them. */
  readonly kinds: readonly string[] | null;
  readonly fitting: Partial<SelectBy>;
  readonly others: readonly Partial<SelectBy>[];
}

/** The semantics: which kinds a selector is for, one that matches the sample, and some that narrowly miss it. */
const table: { readonly [Sort in SelectorSort]: Row } = {
  id: { kinds: null, fitting: { id: "obj1" }, others: [{ id: "obj" }, { id: "OBJ1" }, { id: "" }] },
  idPrefix: { kinds: null, fitting: { idPrefix: "obj" }, others: [{ idPrefix: "obj12" }, { idPrefix: "bj" }] },
  name: { kinds: null, fitting: { name: "web" }, others: [{ name: "Web" }, { name: "we" }, { name: "" }] },
  namePrefix: { kinds: null, fitting: { namePrefix: "we" }, others: [{ namePrefix: "eb" }, { namePrefix: "webs" }] },
  custom: {
    kinds: null,
    fitting: { custom: byIndex("team", "blue") },
    others: [{ custom: byIndex("team", "blu") }, { custom: byIndex("tea", "blue") }],
  },
  customPrefix: {
    kinds: null,
    fitting: { customPrefix: byIndex("team", "bl") },
    others: [{ customPrefix: byIndex("team", "lue") }, { customPrefix: byIndex("t", "blue") }],
  },
  serviceId: { kinds: ["task"], fitting: { serviceId: "svc1" }, others: [{ serviceId: "svc" }, { serviceId: "nod1" }] },
  nodeId: { kinds: ["task"], fitting: { nodeId: "nod1" }, others: [{ nodeId: "" }, { nodeId: "svc1" }] },
  // SwarmKit compares the service's id with the node's.
  slot: { kinds: ["task"], fitting: slot("svc1", 3), others: [slot("svc1", 2), slot("nod1", 3)] },
  desiredState: {
    kinds: ["task"],
    fitting: { desiredState: TaskState.RUNNING },
    others: [{ desiredState: TaskState.NEW }, { desiredState: TaskState.SHUTDOWN }],
  },
  role: { kinds: ["node"], fitting: { role: NodeRole.MANAGER }, others: [{ role: NodeRole.WORKER }] },
  membership: {
    kinds: ["node"],
    fitting: { membership: NodeSpec_Membership.ACCEPTED },
    others: [{ membership: NodeSpec_Membership.PENDING }],
  },
  referencedNetworkId: {
    kinds: ["service", "task"],
    fitting: { referencedNetworkId: "net1" },
    others: [{ referencedNetworkId: "net" }, { referencedNetworkId: "sec1" }],
  },
  referencedSecretId: {
    kinds: ["service", "task"],
    fitting: { referencedSecretId: "sec1" },
    others: [{ referencedSecretId: "con1" }],
  },
  referencedConfigId: {
    kinds: ["service", "task"],
    fitting: { referencedConfigId: "con1" },
    others: [{ referencedConfigId: "sec1" }],
  },
  kind: { kinds: ["resource"], fitting: { kind: "backup" }, others: [{ kind: "backups" }, { kind: "Backup" }] },
};

function entry(kind: string, action: number, ...filters: readonly Partial<SelectBy>[]): WatchRequest_WatchEntry {
  return WatchRequest_WatchEntry.create({
    kind,
    action: action as WatchActionKind,
    filters: filters.map((each) => SelectBy.create(each)),
  });
}

function filterOf(...args: Parameters<typeof entry>): WatchFilter {
  const outcome = watchFilter(entry(...args), isResourceKind);
  if (outcome.kind === "refused") throw new Error(outcome.refusal.message);
  return outcome.filter;
}

function refusalOf(...args: Parameters<typeof entry>): string {
  const outcome = watchFilter(entry(...args), isResourceKind);
  return outcome.kind === "refused" ? outcome.refusal.message : "";
}

function changeOf(kind: string, action: WatchActionKind, object: WatchedObject, old: WatchedObject | null = null) {
  return { table: kind === customKind ? "resource" : kind, action, object, old } satisfies WatchedChange;
}

/** By the filter, and by the index: both must agree. */
function isTold(filter: WatchFilter, change: WatchedChange): boolean {
  const index = new WatchIndex<string>();
  index.add("w", [filter]);
  let found = false;
  index.find(change, () => (found = true));
  const wanted = isWanted([filter], change);
  if (found !== wanted) throw new Error(`the index says ${found}, the filter ${wanted}`);
  return wanted;
}

for (const kind of kinds) {
  test(`every selector with every action on kind ${kind} follows the semantics`, (t) => {
    const sample = samples[kind] as WatchedObject;
    for (const [sort, row] of Object.entries(table) as [SelectorSort, Row][]) {
      const wireName = sort.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      if (row.kinds !== null && !row.kinds.includes(kind)) {
        for (const action of [...actions, 7]) {
          t.is(refusalOf(kind, action, row.fitting), `selector ${wireName} does not apply to objects of kind ${kind}`);
        }
        continue;
      }
      for (const mask of [1, 2, 3, 4, 5, 6, 7]) {
        const filter = filterOf(kind, mask, row.fitting);
        for (const action of actions) {
          const told = isTold(filter, changeOf(kind, action, sample));
          t.is(told, (mask & action) !== 0, `${wireName}, mask ${mask}, action ${action}`);
          for (const other of kinds) {
            const isSame =
              other === kind ||
              [other, kind].every((each) => samples[each]?.constructor === Resource.create().constructor);
            if (!isSame) t.false(isTold(filter, changeOf(other, action, samples[other] as WatchedObject)));
          }
        }
      }
      for (const other of row.others) {
        for (const action of actions) {
          t.false(
            isTold(filterOf(kind, 7, other), changeOf(kind, action, sample)),
            `${wireName} ${JSON.stringify(other)}`,
          );
        }
        // Both in one entry, of different sorts, must match; in two entries one is enough.
        const partner = sort === "idPrefix" ? "id" : "idPrefix";
        const both = filterOf(kind, 7, other, table[partner].fitting);
        t.false(isTold(both, changeOf(kind, update, sample)));
        t.true(
          isWanted([both, filterOf(kind, 7, row.fitting)], changeOf(kind, update, sample)),
          `${wireName} beside another entry`,
        );
      }
      t.is(refusalOf(kind, 7, row.fitting, row.fitting), "conflicting filters specified");
    }
  });
}

test("the table has every selector, and every kind has a sample", (t) => {
  t.deepEqual(Object.keys(table).toSorted(), Object.keys(selectors).toSorted());
  t.deepEqual(Object.keys(SelectBy.create()).length, 0);
  t.deepEqual(Object.keys(samples).toSorted(), [...kinds].toSorted());
});

test("an update that leaves or enters a filter is sent; one that stays outside is not", (t) => {
  const at = (nodeId: string) => Task.create({ id: "t1", serviceId: "s", nodeId });
  const filter = filterOf("task", 7, { nodeId: "n1" });
  t.true(isTold(filter, changeOf("task", update, at("n1"), at(""))));
  t.true(isTold(filter, changeOf("task", update, at("n2"), at("n1"))));
  t.false(isTold(filter, changeOf("task", update, at("n2"), at("n3"))));
  t.false(isTold(filterOf("task", create, { nodeId: "n1" }), changeOf("task", update, at("n1"), at(""))));
});

test("networks are found by spec, by attachment, by the old place of a service's spec and by virtual address", (t) => {
  const filter = (kind: string) => filterOf(kind, 7, { referencedNetworkId: "net2" });
  const attached = Task.create({
    id: "t",
    networks: [NetworkAttachment.create({ network: Network.create({ id: "net2" }) })],
  });
  t.true(isTold(filter("task"), changeOf("task", create, attached)));
  const networks = [NetworkAttachmentConfig.create({ target: "net2" })];
  t.true(
    isTold(
      filter("service"),
      changeOf("service", create, Service.create({ id: "s", spec: ServiceSpec.create({ networks }) })),
    ),
  );
  const endpoint = Endpoint.create({ virtualIps: [Endpoint_VirtualIP.create({ networkId: "net2" })] });
  t.true(isTold(filter("service"), changeOf("service", create, Service.create({ id: "s", endpoint }))));
  t.false(isTold(filter("service"), changeOf("service", create, Service.create({ id: "s" }))));
});

test("a task without its own name is found by its computed name", (t) => {
  const task = Task.create({
    id: "t1",
    slot: 2,
    serviceId: "s",
    serviceAnnotations: Annotations.create({ name: "web" }),
  });
  t.true(isTold(filterOf("task", 7, { name: "web.2.t1" }), changeOf("task", create, task)));
  t.true(isTold(filterOf("task", 7, { namePrefix: "web.2" }), changeOf("task", create, task)));
});

test("kind resource matches every resource, a custom kind only its own", (t) => {
  const other = Resource.create({ id: "r", kind: "other" });
  t.true(isTold(filterOf("resource", 7), changeOf("resource", create, other)));
  t.false(isTold(filterOf(customKind, 7), changeOf("resource", create, other)));
  t.true(isTold(filterOf(customKind, 7), changeOf("resource", create, samples[customKind] as WatchedObject)));
});

test("a filter that nothing could match is rejected", (t) => {
  t.is(refusalOf("task", 0), "unrecognized action 0");
  t.is(refusalOf("task", 8), "unrecognized action 8");
  t.is(refusalOf("task", 9), "unrecognized action 9");
  t.is(refusalOf("", 7), "no kind of object specified");
  t.regex(refusalOf("Task", 7), /^unknown kind 'Task': expected node, .*, or a kind registered by an extension$/);
  t.is(refusalOf("task", 7, {}), "filter for objects of kind task has no selector");
  const impossible = (sort: string, kind: string) =>
    new RegExp(`^selector ${sort} can never match an object of kind ${kind}: `);
  t.regex(refusalOf("task", 7, { desiredState: 77 as TaskState }), impossible("desired_state", "task"));
  t.regex(refusalOf("node", 7, { role: 5 as NodeRole }), impossible("role", "node"));
  t.regex(refusalOf("node", 7, { membership: 5 as NodeSpec_Membership }), impossible("membership", "node"));
  const custom = SelectByCustom.create({ kind: "node", index: "a", value: "b" });
  t.regex(refusalOf("service", 7, { custom }), impossible("custom", "service"));
  t.regex(refusalOf("service", 7, { customPrefix: custom }), impossible("custom_prefix", "service"));
  t.is(refusalOf("node", 7, { custom }), "");
});

const text = fc.constantFrom("", "a", "b", "n1", "n2", "s1", "s2", "backup", "other");
const number = fc.constantFrom(0, 1, 2, 512, 640, 99);
const custom = fc
  .record({ kind: fc.constantFrom("", "task"), index: text, value: text })
  .map((fields) => SelectByCustom.create(fields));
const anySelector: fc.Arbitrary<Partial<SelectBy>> = fc.oneof(
  ...(
    [
      "id",
      "idPrefix",
      "name",
      "namePrefix",
      "serviceId",
      "nodeId",
      "referencedNetworkId",
      "referencedSecretId",
      "referencedConfigId",
      "kind",
    ] as const
  ).map((sort) => text.map((value) => ({ [sort]: value }))),
  ...(["desiredState", "role", "membership"] as const).map((sort) => number.map((value) => ({ [sort]: value }))),
  custom.map((value) => ({ custom: value })),
  custom.map((value) => ({ customPrefix: value })),
  fc.tuple(text, number).map(([serviceId, at]) => slot(serviceId, at)),
);
const anyEntry = fc
  .tuple(fc.constantFrom(...kinds, "nonsense"), fc.nat(9), fc.array(anySelector, { maxLength: 3 }))
  .map(([kind, action, filters]) => entry(kind, action, ...filters));
const anyTask = fc
  .record({ id: text, nodeId: text, serviceId: text, slot: number, desiredState: number })
  .map((fields) => Task.create(fields as Partial<Task>));
const anyResource = fc.record({ id: text, kind: text }).map((fields) => Resource.create(fields));
const pair = <Kind extends WatchedObject>(tableName: string, object: fc.Arbitrary<Kind>): fc.Arbitrary<WatchedChange> =>
  fc
    .tuple(fc.constantFrom(...actions), object, fc.option(object))
    .map(([action, now, old]) => ({ table: tableName, action, object: now, old: action === update ? old : null }));
const anyChange = fc.oneof(
  pair("task", anyTask),
  pair("resource", anyResource),
  fc.constantFrom(...watchedKinds).chain((kind) => pair(kind, fc.constant(samples[kind] as WatchedObject))),
);

test("any entry is accepted or rejected in words that name its kind", (t) => {
  fc.assert(
    fc.property(anyEntry, (wanted) => {
      const outcome = watchFilter(
        WatchRequest_WatchEntry.decode(WatchRequest_WatchEntry.encode(wanted)),
        isResourceKind,
      );
      if (outcome.kind === "filter") return outcome.filter.selectors.length >= wanted.filters.length;
      const { kind, message } = outcome.refusal;
      return kind === "invalid-argument" && (message.includes(wanted.kind) || /unrecognized|conflicting/.test(message));
    }),
    { numRuns: 500 },
  );
  t.pass();
});

test("an index of many watchers finds those whose filters match, through all additions and removals", (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.array(anyEntry, { minLength: 1, maxLength: 3 }), { maxLength: 12 }),
      fc.array(anyChange),
      fc.nat(),
      (all, changes, seed) => {
        const index = new WatchIndex<number>();
        const watchers = new Map<number, readonly WatchFilter[]>();
        for (const [at, entries] of all.entries()) {
          const filters = entries
            .map((each) => watchFilter(each, isResourceKind))
            .flatMap((outcome) => (outcome.kind === "filter" ? [outcome.filter] : []));
          watchers.set(at, filters);
          index.add(at, filters);
        }
        for (const [at, change] of changes.entries()) {
          const found = new Set<number>();
          index.find(change, (watcher) => void found.add(watcher));
          for (const [watcher, filters] of watchers) if (found.has(watcher) !== isWanted(filters, change)) return false;
          const leaving = (seed + at) % (all.length + 1);
          index.remove(leaving);
          watchers.delete(leaving);
        }
        return true;
      },
    ),
    { numRuns: 300 },
  );
  t.pass();
});
