// The shapes that clients were written against: every key of the reference's lists (§6.1, §7) exists with its type, and the
// reference's samples (§9) are answered to the letter.
import test from "ava";
import {
  Annotations,
  ContainerSpec,
  Endpoint,
  Network,
  NetworkAttachmentConfig,
  NetworkSpec,
  PortConfig,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Timestamp,
} from "../../proto/gen/messages.ts";
import { decode } from "../../edges/juju/wire/decode.ts";
import { encodeError } from "../../edges/juju/wire/encode.ts";
import { RequestError } from "../../edges/juju/request-error.ts";
import { workerNode } from "../support/control.ts";
import { jsonWorld, type Reply } from "../support/json-world.ts";
import type { TestManager } from "../support/manager.ts";

type Type = "string" | "number" | "boolean" | "list" | "object" | "text or null" | "anything";
type Shape = Readonly<Record<string, Type | ShapeOf>>;
interface ShapeOf {
  readonly shape: Shape;
}

/** `string: a b c`, one line for each type. */
function shape(lines: Partial<Record<Type, string>>, nested: Readonly<Record<string, Shape>> = {}): Shape {
  const entries = Object.entries(lines).flatMap(([type, names]) =>
    names.split(" ").map((name) => [name, type as Type]),
  );
  const objects = Object.entries(nested).map(([name, inner]) => [name, { shape: inner }]);
  return Object.fromEntries([...entries, ...objects]) as Shape;
}

function isOf(type: Type, value: unknown): boolean {
  switch (type) {
    case "list":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "text or null":
      return value === null || typeof value === "string";
    case "anything":
      return true;
    default:
      return typeof value === type;
  }
}

/** Paths that are missing or have another type. */
function problems(value: unknown, wanted: Shape, path = ""): readonly string[] {
  return Object.entries(wanted).flatMap(([name, type]) => {
    const at = `${path}.${name}`;
    const found = (value as Reply)[name];
    if (found === undefined) return [`${at} is missing`];
    if (typeof type === "object")
      return isOf("object", found) ? problems(found, type.shape, at) : [`${at} is not an object`];
    return isOf(type, found) ? [] : [`${at} is no ${type}`];
  });
}

const detailed = shape({ string: "status info kind version life", object: "data", "text or null": "since" });
const oldDetailed = shape({
  string: "Status Info Kind Version Life",
  object: "Data",
  "text or null": "Since",
  anything: "Err",
});
const current = shape({ string: "current message version" });
const base = shape({ string: "name channel" });

const newShapes = {
  status: shape(
    {
      object: "machines applications remote-applications offers branches",
      list: "relations",
      string: "controller-timestamp",
    },
    {
      model: shape(
        { string: "name type cloud-tag region version available-version sla" },
        { "model-status": detailed, "meter-status": shape({ string: "color message" }) },
      ),
    },
  ),
  machine: shape(
    {
      string: "hostname dns-name instance-id display-name id constraints hardware series",
      list: "ip-addresses jobs",
      object: "network-interfaces containers lxd-profiles",
      boolean: "has-vote wants-vote",
    },
    { "agent-status": detailed, "instance-status": detailed, "modification-status": detailed, base },
  ),
  application: shape(
    {
      string: "charm charm-version charm-profile life can-upgrade-to workload-version public-address series",
      boolean: "exposed",
      object: "relations units meter-statuses endpoint-bindings",
      list: "subordinate-to",
      number: "int",
    },
    { status: detailed, base },
  ),
  unit: shape(
    {
      string: "workload-version machine public-address charm provider-id",
      list: "opened-ports",
      object: "subordinates",
    },
    { "agent-status": detailed, "workload-status": detailed },
  ),
  relation: shape({ number: "id", string: "key interface scope", list: "endpoints" }, { status: detailed }),
} as const;

const oldShapes = {
  status: shape({ string: "EnvironmentName", object: "Machines Services Networks", list: "Relations" }),
  machine: shape(
    {
      string: "AgentState AgentStateInfo AgentVersion Life DNSName InstanceId InstanceState Series Id Hardware",
      object: "Containers",
      list: "Jobs",
      boolean: "HasVote WantsVote",
      anything: "Err",
    },
    { Agent: oldDetailed },
  ),
  service: shape(
    {
      string: "Charm Life CanUpgradeTo",
      boolean: "Exposed",
      object: "Relations Units",
      list: "SubordinateTo",
      anything: "Err",
    },
    { Networks: shape({ list: "Enabled Disabled" }), Status: oldDetailed },
  ),
  unit: shape(
    {
      string: "AgentState AgentStateInfo AgentVersion Life Machine PublicAddress Charm",
      list: "OpenedPorts",
      object: "Subordinates",
      anything: "Err",
    },
    { UnitAgent: oldDetailed, Workload: oldDetailed },
  ),
  relation: shape({ number: "Id", string: "Key Interface Scope", list: "Endpoints" }),
} as const;

const newDeltas: Readonly<Record<string, Shape>> = {
  model: shape(
    {
      string: "model-uuid name life owner controller-uuid type cloud cloud-region version",
      boolean: "is-controller",
      object: "constraints config",
    },
    { status: current, sla: shape({ string: "level owner" }) },
  ),
  machine: shape(
    {
      string: "model-uuid id instance-id life base series container-type",
      list: "supported-containers jobs addresses",
      boolean: "supported-containers-known has-vote wants-vote",
    },
    { "agent-status": current, "instance-status": current },
  ),
  application: shape(
    {
      string: "model-uuid name charm-url owner-tag life workload-version",
      boolean: "exposed subordinate",
      number: "min-units",
      object: "constraints config",
    },
    { status: current },
  ),
  unit: shape(
    {
      string:
        "model-uuid name application base series charm-url life public-address private-address machine-id principal",
      list: "ports port-ranges",
      boolean: "subordinate",
    },
    { "workload-status": current, "agent-status": current },
  ),
  relation: shape({ string: "model-uuid key", number: "id", list: "endpoints" }),
  annotation: shape({ string: "model-uuid tag", object: "annotations" }),
};

const oldDeltas: Readonly<Record<string, Shape>> = {
  machine: shape({
    string: "Id InstanceId Status StatusInfo Life Series",
    object: "StatusData",
    list: "SupportedContainers Jobs Addresses",
    boolean: "SupportedContainersKnown HasVote WantsVote",
  }),
  service: shape({
    string: "Name CharmURL OwnerTag Life",
    boolean: "Exposed Subordinate",
    number: "MinUnits",
    object: "Constraints Config Status",
  }),
  unit: shape({
    string: "Name Service Series CharmURL PublicAddress PrivateAddress MachineId Status StatusInfo",
    list: "Ports PortRanges",
    boolean: "Subordinate",
    object: "StatusData WorkloadStatus AgentStatus",
  }),
  relation: shape({ string: "Key", number: "Id", list: "Endpoints" }),
  annotation: shape({ string: "Tag", object: "Annotations" }),
};

function seeded({ seed }: TestManager): void {
  const named = (name: string) => Annotations.create({ name, labels: { a: "b" } });
  const networks = [NetworkAttachmentConfig.create({ target: "back" })];
  const endpoint = Endpoint.create({ ports: [PortConfig.create({ targetPort: 80, publishedPort: 8080 })] });
  seed("node", workerNode("n1"));
  seed("network", Network.create({ id: "back", spec: NetworkSpec.create({ annotations: named("back") }) }));
  for (const name of ["web", "db"]) {
    const task = TaskSpec.create({ container: ContainerSpec.create({ image: "i", env: ["A=1"] }), networks });
    seed(
      "service",
      Service.create({ id: name, endpoint, spec: ServiceSpec.create({ annotations: named(name), task }) }),
    );
    const status = TaskStatus.create({ state: TaskState.RUNNING, timestamp: Timestamp.create({ seconds: 1 }) });
    const fields = { serviceId: name, serviceAnnotations: named(name), desiredState: TaskState.RUNNING };
    seed("task", Task.create({ id: `${name}-1`, slot: 1, nodeId: "n1", endpoint, status, ...fields }));
  }
}

const values = (of: unknown): readonly unknown[] => Object.values(of as object);

/** Keys with these names and the value null crash a client of 2.x or 3.x (reference §1.2). */
function nullErrors(value: unknown): readonly string[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, each]) => (key === "error" && each === null ? [key] : nullErrors(each)));
}

test("the full status of 2.x and 3.x has every key that clients read, with its type", async (t) => {
  const { connect, manager } = await jsonWorld(t);
  seeded(manager);
  const status = await connect("V1").ask({ type: "Client", version: 6, request: "FullStatus" });
  const applications = values(status["applications"]) as Reply[];
  t.deepEqual(problems(status, newShapes.status), []);
  t.deepEqual(
    values(status["machines"]).flatMap((each) => problems(each, newShapes.machine)),
    [],
  );
  t.deepEqual(
    applications.flatMap((each) => problems(each, newShapes.application)),
    [],
  );
  t.deepEqual(
    applications.flatMap(({ units }) => values(units)).flatMap((each) => problems(each, newShapes.unit)),
    [],
  );
  t.deepEqual(
    values(status["relations"]).flatMap((each) => problems(each, newShapes.relation)),
    [],
  );
  t.deepEqual(nullErrors(status), []);
  t.is(applications.length, 2);
});

test("the full status of 1.x has every key that clients read, with its type", async (t) => {
  const { connect, manager } = await jsonWorld(t);
  seeded(manager);
  const status = await connect("V0").ask({ type: "Client", request: "FullStatus" });
  const services = values(status["Services"]) as Reply[];
  t.deepEqual(problems(status, oldShapes.status), []);
  t.deepEqual(
    values(status["Machines"]).flatMap((each) => problems(each, oldShapes.machine)),
    [],
  );
  t.deepEqual(
    services.flatMap((each) => problems(each, oldShapes.service)),
    [],
  );
  t.deepEqual(
    services.flatMap(({ Units }) => values(Units)).flatMap((each) => problems(each, oldShapes.unit)),
    [],
  );
  t.deepEqual(
    values(status["Relations"]).flatMap((each) => problems(each, oldShapes.relation)),
    [],
  );
  t.is(services.length, 2);
});

for (const [name, version, watcher, next, shapes] of [
  ["V1", 6, "watcher-id", "deltas", newDeltas],
  ["V0", 0, "AllWatcherId", "Deltas", oldDeltas],
] as const) {
  test(`every kind of delta of ${name} has every key that clients read, with its type`, async (t) => {
    const { connect, manager } = await jsonWorld(t);
    seeded(manager);
    const { ask } = connect(name);
    const watching = await ask({ type: "Client", version, request: "WatchAll" });
    const id = watching[watcher] as string;
    const answer = await ask({ type: "AllWatcher", version: version === 0 ? 0 : 3, id, request: "Next" });
    const deltas = answer[next] as [string, string, Reply][];
    t.deepEqual([...new Set(deltas.map(([kind]) => kind))].toSorted(), Object.keys(shapes).toSorted());
    for (const [kind, action, entity] of deltas) {
      t.is(action, "change");
      t.deepEqual(problems(entity, shapes[kind] ?? {}), [], kind);
    }
  });
}

test("the reference's samples are answered to the letter", async (t) => {
  const { connect } = await jsonWorld(t);
  const { ask } = connect("V1");
  const send = async (text: string): Promise<unknown> => {
    const decoded = decode(text);
    if (decoded.kind !== "request") throw new Error(decoded.kind);
    const { type, request, id, version, params } = decoded.request;
    return ask({ type, request, id, version: version ?? 0, params });
  };
  t.deepEqual(await send('{"request-id":4,"type":"Client","request":"WatchAll","version":6,"params":{}}'), {
    "watcher-id": "1",
  });
  const next = '{"type":"AllWatcher","request":"Next","version":3,"params":{},"Id":"1","request-id":5}';
  const { deltas } = (await send(next)) as { deltas: unknown[][] };
  t.true(deltas.some(([kind, change]) => kind === "machine" && change === "change"));
  const waiting = t.throwsAsync(send(next), { instanceOf: RequestError });
  await new Promise(setImmediate);
  t.deepEqual(
    await send('{"type":"AllWatcher","request":"Stop","version":3,"params":null,"Id":"1","request-id":8}'),
    {},
  );
  const refusal = (await waiting) as RequestError;
  t.is(
    encodeError("V1", 6, refusal),
    '{"request-id":6,"error":"watcher was stopped","error-code":"stopped","response":{}}',
  );
});
