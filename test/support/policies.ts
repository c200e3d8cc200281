/** A small cluster with policies for tests, and random ones: objects as in the store. */
import fc from "fast-check";
import {
  Annotations,
  DataplanePorts,
  Endpoint,
  Endpoint_VirtualIP,
  EndpointSpec,
  HostEndpoint,
  Network,
  NetworkAttachment,
  NetworkPolicy,
  NetworkProfile,
  NetworkSpec,
  Node,
  NodeDescription,
  NodeSpec,
  NodeStatus,
  PolicyOrder,
  PolicyPeer,
  PolicyRule,
  PolicySelector,
  PortConfig,
  Resource,
  Service,
  ServiceSpec,
  Task,
  TaskState,
  TaskStatus,
  Tier,
} from "../../proto/gen/messages.ts";
import { encodePolicyObject, resourceNameOf, type PolicyObject } from "../../machines/policy/objects.ts";

type Labels = Readonly<Record<string, string>>;

export function nodeOf(id: string, hostname = id, labels: Labels = {}, addr = ""): Node {
  return Node.create({
    id,
    spec: NodeSpec.create({ annotations: Annotations.create({ labels: { ...labels } }) }),
    description: NodeDescription.create({ hostname }),
    status: NodeStatus.create({ addr }),
  });
}

export function serviceOf(
  name: string,
  labels: Labels = {},
  ports: readonly (readonly [string, number])[] = [],
  vip = "",
): Service {
  const configs = ports.map(([portName, targetPort]) => PortConfig.create({ name: portName, targetPort }));
  return Service.create({
    id: `svc-${name}`,
    spec: ServiceSpec.create({
      annotations: Annotations.create({ name, labels: { ...labels } }),
      endpoint: EndpointSpec.create({ ports: configs }),
    }),
    endpoint: Endpoint.create({
      virtualIps: vip === "" ? [] : [Endpoint_VirtualIP.create({ networkId: "net", addr: `${vip}/24` })],
    }),
  });
}

export function taskOf(
  id: string,
  service: string,
  nodeId: string,
  addresses: readonly string[],
  state: TaskState = TaskState.RUNNING,
): Task {
  const network = Network.create({
    id: "net",
    spec: NetworkSpec.create({ annotations: Annotations.create({ name: "backend" }) }),
  });
  return Task.create({
    id,
    serviceId: `svc-${service}`,
    serviceAnnotations: Annotations.create({ name: service }),
    slot: 1,
    nodeId,
    status: TaskStatus.create({ state }),
    desiredState: TaskState.RUNNING,
    networks: addresses.length === 0 ? [] : [NetworkAttachment.create({ network, addresses: [...addresses] })],
  });
}

export function resourceOf(of: PolicyObject): Resource {
  const name = resourceNameOf(of.kind, of.object.name);
  return Resource.create({
    id: name,
    annotations: Annotations.create({ name }),
    kind: of.kind,
    payload: encodePolicyObject(of),
  });
}

export const chosen = (text: string): PolicySelector => PolicySelector.create({ text });

export const port = (first: number, last = first): DataplanePorts => DataplanePorts.create({ first, last });

/** A cluster at one moment: each table by id. */
export interface Cluster {
  readonly node: Map<string, Node>;
  readonly service: Map<string, Service>;
  readonly task: Map<string, Task>;
  readonly resource: Map<string, Resource>;
}

export function emptyCluster(): Cluster {
  return { node: new Map(), service: new Map(), task: new Map(), resource: new Map() };
}

/** One object that is written or removed. */
export type Step =
  | { readonly table: "node"; readonly id: string; readonly object: Node | null }
  | { readonly table: "service"; readonly id: string; readonly object: Service | null }
  | { readonly table: "task"; readonly id: string; readonly object: Task | null }
  | { readonly table: "resource"; readonly id: string; readonly object: Resource | null };

const nodeIds = ["n1", "n2"] as const;
const services = ["web", "db", "log"] as const;
const labelKey = fc.constantFrom("app", "zone");
const labelValue = fc.constantFrom("a", "b");
const labels = fc.dictionary(labelKey, labelValue, { maxKeys: 2 });
const addresses = fc.constantFrom("10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24", "fd00::1/64", "fd00::2/64");
const selectorTexts = fc.constantFrom(
  "",
  "app == 'a'",
  "app != 'b'",
  "service == 'web'",
  "service in {'db', 'log'}",
  "zone starts with 'a' || has(app)",
  "node == 'n1'",
  "!has(app)",
  "node.labels.zone == 'b'",
);

const peer = fc
  .record({
    selector: fc.option(selectorTexts, { freq: 1 }),
    notSelector: fc.option(selectorTexts, { freq: 1 }),
    nets: fc.subarray(["10.0.0.0/30", "10.0.0.2", "fd00::/127"]),
    notNets: fc.subarray(["10.0.0.1/32", "fd00::2"], { maxLength: 1 }),
    ports: fc.subarray([port(80), port(1_000, 2_000)]),
    namedPorts: fc.subarray(["http", "sql"], { maxLength: 1 }),
  })
  .map(({ selector, notSelector, ...rest }) =>
    PolicyPeer.create({
      ...rest,
      selector: selector === null ? null : chosen(selector),
      notSelector: notSelector === null ? null : chosen(notSelector),
    }),
  );

const rules = fc.array(
  fc
    .record({
      action: fc.constantFrom("allow", "deny", "pass", "log"),
      protocol: fc.constantFrom("tcp", "udp"),
      source: fc.option(peer),
      destination: fc.option(peer),
    })
    .map((fields) => PolicyRule.create(fields)),
  { maxLength: 3 },
);

const order = fc.option(fc.nat(3)).map((value) => (value === null ? null : PolicyOrder.create({ value })));

const policies: fc.Arbitrary<PolicyObject> = fc
  .record({
    name: fc.constantFrom("p1", "p2", "p3", "p4"),
    tier: fc.constantFrom("", "front"),
    order,
    selector: selectorTexts,
    appliesIngress: fc.boolean(),
    ingress: rules,
    egress: rules,
    stage: fc.constantFrom("normal", "forward", "untracked", "pre-dnat"),
  })
  .map(({ stage, appliesIngress, ...fields }) => ({
    kind: "NetworkPolicy",
    object: NetworkPolicy.create({
      ...fields,
      appliesIngress: appliesIngress || stage === "pre-dnat" || fields.ingress.length > 0,
      appliesEgress: stage !== "pre-dnat" && (!appliesIngress || fields.egress.length > 0),
      egress: stage === "pre-dnat" ? [] : fields.egress,
      applyOnForward: stage !== "normal",
      doNotTrack: stage === "untracked",
      preDnat: stage === "pre-dnat",
    }),
  }));

const otherObjects: fc.Arbitrary<PolicyObject> = fc.oneof(
  fc
    .record({
      name: fc.constantFrom("default", "open"),
      ingress: rules.map((list) => list.filter(({ action }) => action !== "pass")),
    })
    .map<PolicyObject>((fields) => ({ kind: "NetworkProfile", object: NetworkProfile.create(fields) })),
  fc
    .record({ name: fc.constantFrom("front", "default"), order, defaultAction: fc.constantFrom("", "deny", "pass") })
    .map<PolicyObject>((fields) => ({ kind: "Tier", object: Tier.create(fields) })),
  fc
    .record({
      name: fc.constantFrom("h1", "h2"),
      node: fc.constantFrom("n1", "n2", "unknown"),
      labels,
      profiles: fc.subarray(["open"]),
      expectedAddresses: fc.subarray(["192.0.2.1", "fd00::9"]),
    })
    .map<PolicyObject>((fields) => ({
      kind: "HostEndpoint",
      object: HostEndpoint.create({ ...fields, interface: "eth0" }),
    })),
);

const resources = fc.oneof({ weight: 3, arbitrary: policies }, { weight: 2, arbitrary: otherObjects }).map(resourceOf);

/** Histories of a cluster of two nodes, in which objects are created, changed and removed. */
export const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc
      .record({
        id: fc.constantFrom("t1", "t2", "t3", "t4"),
        service: fc.constantFrom(...services),
        node: fc.constantFrom("", ...nodeIds),
        addresses: fc.uniqueArray(addresses, { maxLength: 2 }),
        state: fc.constantFrom(TaskState.ASSIGNED, TaskState.RUNNING, TaskState.RUNNING, TaskState.FAILED),
      })
      .map<Step>((of) => ({
        table: "task",
        id: of.id,
        object: taskOf(of.id, of.service, of.node, of.addresses, of.state),
      })),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(
        fc.constantFrom(...services),
        labels,
        fc.subarray([["http", 80] as const, ["sql", 5_432] as const]),
        fc.boolean(),
      )
      .map<Step>(([name, own, ports, hasVip]) => ({
        table: "service",
        id: `svc-${name}`,
        object: serviceOf(name, own, ports, hasVip ? "10.0.9.9" : ""),
      })),
  },
  {
    weight: 1,
    arbitrary: fc
      .tuple(fc.constantFrom(...nodeIds), fc.constantFrom("a", "b"), fc.constantFrom("", "192.0.2.7"))
      .map<Step>(([id, zone, addr]) => ({ table: "node", id, object: nodeOf(id, id, { zone }, addr) })),
  },
  { weight: 5, arbitrary: resources.map<Step>((object) => ({ table: "resource", id: object.id, object })) },
  {
    weight: 3,
    arbitrary: fc
      .constantFrom<readonly [Step["table"], string]>(
        ["task", "t1"],
        ["task", "t2"],
        ["service", "svc-web"],
        ["node", "n2"],
        ["resource", "NetworkPolicy.p1"],
        ["resource", "NetworkPolicy.p2"],
        ["resource", "NetworkProfile.default"],
        ["resource", "Tier.front"],
        ["resource", "HostEndpoint.h1"],
      )
      .map<Step>(([table, id]) => ({ table, id, object: null })),
  },
);
