/**
 * Requests to Control, one after the other, and what answers them: of ours the answers are kept in a transcript
 * (test/model/control-answers.txt), and a stock swarmd is asked the same (test/interop/control-same-as-stock.test.ts). Where
 * ours is another on purpose, both answers are written down here.
 */
import type { ExecutionContext } from "ava";
import { connectUnix } from "../../edges/grpc/client.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import { ControlService } from "../../proto/gen/messages.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/rpc.ts";

export type Json = Readonly<Record<string, unknown>>;

/** What a manager has answered so far, by the names of the objects. */
export class Side {
  readonly #channel: RpcChannel;
  readonly #objects = new Map<string, { readonly id: string; readonly version: number }>();

  constructor(channel: RpcChannel) {
    this.#channel = channel;
  }

  id(name: string): string {
    return this.#objects.get(name)?.id ?? "";
  }

  version(name: string): Json {
    return { index: this.#objects.get(name)?.version ?? 0 };
  }

  /** `OK` and the names of what was listed, or the status and its text with names in place of ids. */
  async ask(name: string, json: Json): Promise<string> {
    const method = ControlService.methods[name as "GetNode"] as unknown as MethodDescriptor<unknown, unknown>;
    try {
      const answer = method.response.toJson(
        await this.#channel.unary(method, method.request.fromJson(json), { timeoutMs: 20_000 }),
      );
      return `OK ${this.#learn(answer)}`.trim();
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      return `${nameOf(error.code)} ${this.unnamed(error.message)}`;
    }
  }

  /** Remembers each object of an answer; returns their names in order. */
  #learn(answer: Json): string {
    const names: string[] = [];
    for (const value of Object.values(answer).flat()) {
      const object = value as {
        readonly id?: string;
        readonly meta?: { readonly version?: { readonly index?: number } };
        readonly annotations?: { readonly name?: string };
        readonly spec?: { readonly annotations?: { readonly name?: string } };
      };
      const name = object.spec?.annotations?.name ?? object.annotations?.name ?? "";
      if (object.id === undefined) continue;
      if (name !== "") this.#objects.set(name, { id: object.id, version: object.meta?.version?.index ?? 0 });
      names.push(name);
    }
    return names.toSorted().join(" ");
  }

  /** Names in place of ids. */
  unnamed(text: string): string {
    let result = text;
    for (const [name, { id }] of this.#objects) result = result.replaceAll(id, `<${name}>`);
    return result;
  }
}

function nameOf(code: number): string {
  return Object.entries(Status).find(([, value]) => value === code)?.[0] ?? String(code);
}

export interface Step {
  readonly method: string;
  readonly request: (side: Side) => Json;
  /** Where ours is not the stock manager's on purpose: what each answers, as the pattern of a whole line. */
  readonly differs: { readonly stock: RegExp; readonly ours: RegExp } | null;
}

function step(method: string, request: Json | ((side: Side) => Json), differs: Step["differs"] = null): Step {
  return { method, request: typeof request === "function" ? request : () => request, differs };
}

/** Asks at a socket that speaks no TLS; closed with the test. */
export async function sideAt(t: ExecutionContext, socket: string): Promise<Side> {
  const channel = await connectUnix(socket);
  t.teardown(() => channel.close());
  const side = new Side(channel);
  await side.ask("ListClusters", {});
  return side;
}

const groups: { readonly title: string; readonly steps: readonly Step[] }[] = [];

function add(title: string, steps: () => readonly Step[]): void {
  groups.push({ title, steps: steps() });
}

/** In order; each is for a cluster of its own. */
export const controlSteps: readonly (typeof groups)[number][] = groups;

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const labels = { team: "a" };
/** `{ nodeId: "x", … }` for a method such as GetNode, with an empty version where it takes one. */
function nobody(method: string): Json {
  const [, verb, noun] = /^([A-Z][a-z]+)(\w+)$/.exec(method) as unknown as [string, string, string];
  const field = noun.charAt(0).toLowerCase() + noun.slice(1);
  return { [`${field}Id`]: "x", ...(verb === "Update" ? { [`${field}Version`]: {} } : {}) };
}

/** Methods whose request names one object. */
const lookups = ["GetNode", "GetService", "GetTask", "GetCluster", "GetNetwork", "GetSecret", "GetConfig"] as const;
const removals = [
  "RemoveNode",
  "RemoveService",
  "RemoveTask",
  "RemoveNetwork",
  "RemoveSecret",
  "RemoveConfig",
] as const;
const others = ["GetExtension", "RemoveExtension", "GetResource", "RemoveResource"] as const;

add("what names no object, or one that is not there", () => {
  return [
    ...[...lookups, ...removals, ...others].flatMap((method) => [step(method, {}), step(method, nobody(method))]),
    ...["UpdateNode", "UpdateService", "UpdateCluster"].flatMap((method) => [
      step(method, {}),
      step(method, nobody(method)),
    ]),
    step("UpdateNode", { nodeId: "x", nodeVersion: {}, spec: {} }),
    step("UpdateSecret", {}),
    step("UpdateConfig", {}),
    step("UpdateSecret", { secretId: "x", secretVersion: {}, spec: {} }),
    step("UpdateConfig", { configId: "x", configVersion: {}, spec: {} }),
    step("UpdateResource", {}),
    step("UpdateResource", { resourceId: "x", resourceVersion: {} }),
    ...["CreateService", "CreateNetwork", "CreateSecret", "CreateConfig", "CreateExtension", "CreateResource"].map(
      (method) => step(method, {}),
    ),
  ];
});

add("secrets and configs: what is accepted, changed, found and removed", () => {
  const nouns = [
    { noun: "Secret", id: "secretId", version: "secretVersion", list: "ListSecrets", max: 512_000 },
    { noun: "Config", id: "configId", version: "configVersion", list: "ListConfigs", max: 1_024_000 },
  ];
  return nouns.flatMap(({ noun, id, version, list, max }) => {
    const create = (name: string, data = "value", more: Json = {}): Step =>
      step(`Create${noun}`, { spec: { annotations: { name, labels }, data: base64(data), ...more } });
    const update = (annotations: Json, data = "", name = "one"): Step =>
      step(`Update${noun}`, (side) => ({
        [id]: side.id(name),
        [version]: side.version(name),
        spec: { annotations, data: base64(data) },
      }));
    const find = (filters: Json): Step => step(list, { filters });
    return [
      step(`Create${noun}`, { spec: { data: base64("x") } }),
      create(""),
      create("-one"),
      create("one."),
      create("o ne"),
      create("a".repeat(65)),
      create("a".repeat(64)),
      create("none", ""),
      create("big", "x".repeat(max)),
      create("big", "x".repeat(max - 1)),
      create("one"),
      create("one"),
      create("ONE"),
      create("two.b_c-d"),
      step(list, {}),
      find({ names: ["one", "two.b_c-d"] }),
      find({ names: ["ONE"] }),
      find({ names: ["one"], namePrefixes: ["tw"] }),
      find({ namePrefixes: ["nothing"] }),
      find({ labels }),
      find({ labels: { team: "" } }),
      find({ labels: { team: "b" } }),
      find({ names: ["one"], labels: { team: "b" } }),
      step(list, (side) => ({ filters: { idPrefixes: [side.id("one").slice(0, 12)] } })),
      update({ name: "one", labels: { team: "b" } }),
      update({ name: "one", labels: { team: "c" } }, "value"),
      update({ name: "one" }, "other"),
      update({ name: "other" }),
      update({}),
      find({ labels: { team: "c" } }),
      step(
        `Update${noun}`,
        (side) => ({ [id]: side.id("one"), [version]: { index: 1 }, spec: { annotations: { name: "one" } } }),
        { stock: /^UNKNOWN update out of sequence$/, ours: /^ABORTED update out of sequence$/ },
      ),
      step(`Get${noun}`, (side) => ({ [id]: side.id("one") })),
      step(`Remove${noun}`, (side) => ({ [id]: side.id("one") })),
      step(`Remove${noun}`, (side) => ({ [id]: side.id("one") })),
      step(`Get${noun}`, (side) => ({ [id]: side.id("one") })),
    ];
  });
});

add("what a service names must be there, and stays while it does", () => {
  const file = { name: "f", uid: "0", gid: "0", mode: 292 };
  const service = (name: string, container: (side: Side) => Json): Step =>
    step("CreateService", (side) => ({
      spec: { annotations: { name }, replicated: {}, task: { container: { image: "bb:1", ...container(side) } } },
    }));
  const secret = (side: Side, name: string): Json => ({ secretId: side.id(name), secretName: name, file });
  const config = (side: Side, name: string): Json => ({ configId: side.id(name), configName: name, file });
  const create = (method: string, name: string): Step =>
    step(method, { spec: { annotations: { name }, data: base64("x") } });
  return [
    create("CreateSecret", "key"),
    create("CreateSecret", "salt"),
    create("CreateConfig", "conf"),
    service("web", (side) => ({ secrets: [secret(side, "key")], configs: [config(side, "conf")] })),
    service("api", (side) => ({ secrets: [secret(side, "key")] })),
    step("RemoveSecret", (side) => ({ secretId: side.id("key") }), {
      stock: /^INVALID_ARGUMENT secret 'key' is in use by the following services: (api, web|web, api)$/,
      ours: /^INVALID_ARGUMENT secret 'key' is in use by the following services: api, web$/,
    }),
    step("RemoveConfig", (side) => ({ configId: side.id("conf") })),
    step("RemoveSecret", (side) => ({ secretId: side.id("salt") })),
    service("gone", () => ({ secrets: [{ secretId: "nobody", secretName: "salt", file }] })),
    service("gone", () => ({ configs: [{ configId: "nobody", configName: "salt", file }] })),
    service("gone", () => ({
      secrets: [
        { secretId: "n1", secretName: "a", file },
        { secretId: "n2", secretName: "b", file: { ...file, name: "g" } },
      ],
    })),
    service("gone", (side) => ({ secrets: [{ secretId: side.id("key"), secretName: "other", file }] })),
    step("RemoveService", (side) => ({ serviceId: side.id("api") })),
    step("RemoveSecret", (side) => ({ secretId: side.id("key") })),
    step("RemoveService", (side) => ({ serviceId: side.id("web") })),
    step("RemoveSecret", (side) => ({ secretId: side.id("key") })),
    step("RemoveConfig", (side) => ({ configId: side.id("conf") })),
  ];
});

add("extensions and resources", () => {
  const extension = (name: string): Step =>
    step("CreateExtension", { annotations: { name, labels }, description: "d" });
  const resource = (name: string, kind: string): Step =>
    step("CreateResource", { annotations: { name, labels }, kind, payload: { typeUrl: "t", value: base64("v") } });
  const find = (filters: Json): Step => step("ListResources", { filters });
  const update = (fields: Json): Step =>
    step("UpdateResource", (side) => ({
      resourceId: side.id("blue"),
      resourceVersion: side.version("blue"),
      ...fields,
    }));
  return [
    extension(""),
    extension("colour"),
    extension("colour"),
    extension("COLOUR"),
    extension("shape"),
    extension("any name at all!"),
    step("GetExtension", (side) => ({ extensionId: side.id("colour") })),
    resource("", "colour"),
    resource("blue", ""),
    resource("blue", "taste"),
    resource("blue", "colour"),
    resource("BLUE", "shape"),
    resource("red", "colour"),
    resource("round", "shape"),
    step("ListResources", {}),
    find({ kind: "colour" }),
    find({ kind: "taste" }),
    find({ names: ["blue"] }),
    find({ names: ["blue"], namePrefixes: ["r"] }),
    find({ names: ["blue", "round"], kind: "colour" }),
    find({ names: ["blue"], labels: { team: "b" } }),
    find({ labels }),
    step("ListResources", (side) => ({ filters: { names: ["red"], idPrefixes: [side.id("blue").slice(0, 12)] } })),
    update({ annotations: { name: "green" } }),
    update({ annotations: { name: "blue", labels: { team: "b" } } }),
    update({ payload: { typeUrl: "t", value: base64("w") } }),
    update({}),
    find({ labels: { team: "b" } }),
    step("UpdateResource", (side) => ({ resourceId: side.id("blue"), resourceVersion: { index: 1 } }), {
      stock: /^INVALID_ARGUMENT update out of sequence$/,
      // As for every other kind.
      ours: /^ABORTED update out of sequence$/,
    }),
    step("RemoveExtension", (side) => ({ extensionId: side.id("shape") }), {
      // Swarm looks for resources of the extension's id, finds none, and is stopped by its store.
      stock: /^UNKNOWN cannot delete extension because objects of this type exist in the data store$/,
      ours: /^INVALID_ARGUMENT extension 'shape' is in use by the following resource: round$/,
    }),
    step("RemoveResource", (side) => ({ resourceId: side.id("round") })),
    step("RemoveResource", (side) => ({ resourceId: side.id("round") })),
    step("GetResource", (side) => ({ resourceId: side.id("round") })),
    step("RemoveExtension", (side) => ({ extensionId: side.id("shape") })),
    step("RemoveExtension", (side) => ({ extensionId: side.id("shape") })),
    resource("square", "shape"),
    resource("run", "muster.schedule"),
    extension("node"),
    step(
      "CreateExtension",
      { annotations: { name: "Service" } },
      {
        stock: /^OK Service$/,
        // Two kinds that differ in case alone would be told apart by some selectors and not by others.
        ours: /^ALREADY_EXISTS extension Service already exists$/,
      },
    ),
  ];
});

add("networks: what is accepted, found and removed", () => {
  const create = (name: string, more: Json = {}, differs: Step["differs"] = null): Step =>
    step("CreateNetwork", { spec: { annotations: { name, labels }, ...more } }, differs);
  const subnet = (config: Json): Json => ({ ipam: { configs: [config] } });
  const unknownPlugin = {
    stock: /^INVALID_ARGUMENT plugin nobody not supported$/,
    // What a manager that could have plugins, as dockerd can, says.
    ours: /^INVALID_ARGUMENT error during lookup of plugin nobody$/,
  };
  return [
    step("ListNetworks", {}),
    create(""),
    create("a b"),
    create("a".repeat(64)),
    create("back"),
    create(
      "back",
      {},
      {
        stock: /^UNKNOWN name conflicts with an existing object$/,
        ours: /^ALREADY_EXISTS name conflicts with an existing object: network back already exists$/,
      },
    ),
    create("in", { ingress: true, attachable: true }),
    create("in", { ingress: true, driverConfig: { name: "bridge" } }),
    create("in", { ingress: true }),
    step("CreateNetwork", {
      spec: { annotations: { name: "pre", labels: { "com.docker.swarm.predefined": "true" } } },
    }),
    create("odd", { driverConfig: {} }),
    create("odd", { driverConfig: { name: "nobody" } }, unknownPlugin),
    create("odd", { ipam: { driver: { name: "nobody" } } }, unknownPlugin),
    create("odd", { ipam: { driver: {} } }),
    create("odd", subnet({ subnet: "10.7.0.0" })),
    create("odd", subnet({ subnet: "10.7.0.0/24", range: "nothing" })),
    create("odd", subnet({ subnet: "10.7.0.0/24", range: "10.8.0.0/28" })),
    create("odd", subnet({ subnet: "10.7.0.0/24", gateway: "nothing" })),
    create("odd", subnet({ subnet: "10.7.0.0/24", gateway: "10.8.0.1" })),
    create("even", subnet({ subnet: "10.7.0.0/24", range: "10.7.0.128/28", gateway: "10.7.0.1" })),
    step("ListNetworks", { filters: { names: ["back", "even"] } }),
    step("ListNetworks", { filters: { names: ["back", "even"], namePrefixes: ["ev"] } }),
    step("ListNetworks", { filters: { labels } }),
    step("ListNetworks", { filters: { names: ["ingress"] } }),
    step("RemoveNetwork", (side) => ({ networkId: side.id("even") })),
    step("RemoveNetwork", (side) => ({ networkId: side.id("even") })),
    step("CreateService", (side) => ({
      spec: {
        annotations: { name: "web" },
        replicated: {},
        task: { container: { image: "bb:1" }, networks: [{ target: side.id("back") }] },
      },
    })),
    step("RemoveNetwork", (side) => ({ networkId: side.id("back") })),
    step("ListNetworks", { filters: { namePrefixes: ["host"] } }),
    step("RemoveNetwork", (side) => ({ networkId: side.id("host") })),
  ];
});

add("services: updates, rollbacks and filters", () => {
  const spec = (name: string, more: Json = {}, task: Json = {}): Json => ({
    annotations: { name, labels },
    replicated: {},
    task: { container: { image: "bb:1" }, ...task },
    ...more,
  });
  const update = (name: string, wanted: Json, more: Json = {}, differs: Step["differs"] = null): Step =>
    step(
      "UpdateService",
      (side) => ({ serviceId: side.id(name), serviceVersion: side.version(name), spec: wanted, ...more }),
      differs,
    );
  const port = (publishedPort: number, publishMode = "INGRESS"): Json => ({
    endpoint: { ports: [{ targetPort: 80, publishedPort, publishMode }] },
  });
  const { replicated: _, ...unset } = spec("web");
  return [
    step("CreateService", { spec: spec("web") }),
    step("CreateService", { spec: spec("Web") }),
    step("CreateService", { spec: { ...spec("x"), task: {} } }),
    step("CreateService", { spec: unset }),
    step("CreateService", { spec: { ...unset, global: {}, annotations: { name: "all" } } }),
    step("CreateService", { spec: spec("gen", {}, { container: null, generic: { kind: "vm" } }) }),
    step("CreateService", {
      spec: spec(
        "gen",
        {},
        { container: null, generic: { kind: "qemu", payload: { typeUrl: "t", value: base64("v") } } },
      ),
    }),
    step("ListServices", {}),
    step("ListServices", { filters: { runtimes: ["container"] } }),
    step("ListServices", { filters: { runtimes: ["qemu"] } }),
    step("ListServices", { filters: { names: ["web"], labels: { team: "b" } } }),
    step("ListServices", { filters: { namePrefixes: ["w"], names: ["web"] } }),
    step("ListServices", (side) => ({ filters: { idPrefixes: [side.id("web").slice(0, 9)] } })),
    update("web", spec("other")),
    update("web", { ...unset, global: {} }),
    update("web", spec("web"), { rollback: "PREVIOUS" }),
    update("web", spec("web", {}, { forceUpdate: 1 })),
    step("GetService", (side) => ({ serviceId: side.id("web") })),
    step(
      "UpdateService",
      (side) => ({
        serviceId: side.id("web"),
        serviceVersion: { index: 1 },
        spec: spec("web", {}, { forceUpdate: 2 }),
      }),
      { stock: /^UNKNOWN update out of sequence$/, ours: /^ABORTED update out of sequence$/ },
    ),
    step("CreateService", { spec: spec("front", port(8080)) }),
    step("CreateService", { spec: spec("front2", port(8080)) }),
    step("CreateService", { spec: spec("front2", port(8080, "HOST")) }),
    step("CreateService", { spec: spec("bound", port(9090, "HOST")) }),
    step("CreateService", { spec: spec("bound2", port(9090, "HOST")) }),
    step(
      "CreateService",
      { spec: spec("bound3", port(9090)) },
      {
        stock:
          /^INVALID_ARGUMENT port '9090' is already in use by service 'bound2?' \(<bound2?>\) as a host-published port$/,
        ours: /^INVALID_ARGUMENT port '9090' is already in use by service 'bound' \(<bound>\) as a host-published port$/,
      },
    ),
    step("ListServiceStatuses", {}),
    step("ListTasks", { filters: { serviceIds: ["nobody"] } }),
    step("RemoveService", (side) => ({ serviceId: side.id("front") })),
    step("CreateService", { spec: spec("front2", port(8080, "HOST")) }),
  ];
});

add("the cluster: what may be changed", () => {
  const update = (spec: Json, differs: Step["differs"] = null): Step =>
    step(
      "UpdateCluster",
      (side) => ({ clusterId: side.id("default"), clusterVersion: side.version("default"), spec }),
      differs,
    );
  const named = { annotations: { name: "default" } };
  return [
    update({}),
    update({ annotations: { name: "other" } }),
    update({ ...named, caConfig: { nodeCertExpiry: { seconds: 3_599 } } }),
    update({ ...named, dispatcher: { heartbeatPeriod: { seconds: -1 } } }),
    update({ ...named, acceptancePolicy: { policies: [{ secret: { data: base64("x"), alg: "md5" } }] } }),
    update({
      ...named,
      caConfig: { nodeCertExpiry: { seconds: 3_600 } },
      dispatcher: { heartbeatPeriod: { seconds: 7 } },
      orchestration: { taskHistoryRetentionLimit: 3 },
      acceptancePolicy: { policies: [{ secret: { data: base64("x"), alg: "BCrypt" } }] },
    }),
    step("GetCluster", (side) => ({ clusterId: side.id("default") })),
    step("UpdateCluster", (side) => ({ clusterId: side.id("default"), clusterVersion: { index: 1 }, spec: named }), {
      stock: /^UNKNOWN update out of sequence$/,
      ours: /^ABORTED update out of sequence$/,
    }),
    step("UpdateCluster", (side) => ({
      clusterId: side.id("default"),
      clusterVersion: side.version("default"),
      spec: named,
      rotation: { workerJoinToken: true },
    })),
    step("ListClusters", { filters: { names: ["default"], namePrefixes: ["x"] } }),
    step("ListClusters", { filters: { namePrefixes: ["def"] } }),
  ];
});

add("services: what is refused", () => {
  const bad = (more: Json, differs: Step["differs"] = null): Step =>
    step(
      "CreateService",
      { spec: { annotations: { name: "bad" }, replicated: {}, task: { container: { image: "bb:1" } }, ...more } },
      differs,
    );
  const task = (more: Json, differs: Step["differs"] = null): Step =>
    bad({ task: { container: { image: "bb:1" }, ...more } }, differs);
  const container = (more: Json, differs: Step["differs"] = null): Step =>
    bad({ task: { container: { image: "bb:1", ...more } } }, differs);
  const better = (stock: RegExp, ours: RegExp): Step["differs"] => ({ stock, ours });
  const negative = { seconds: -1 };
  const { replicated: _, ...job } = { replicated: {}, replicatedJob: { maxConcurrent: 1, totalCompletions: 1 } };
  const noMode = { replicated: null };
  return [
    task({ resources: { limits: { nanoCpus: 999_999 } } }),
    task({ resources: { reservations: { nanoCpus: -5 } } }),
    task({ resources: { limits: { memoryBytes: 4_194_303 } } }),
    task({ resources: { reservations: { memoryBytes: 1 } } }),
    task({ restart: { delay: negative } }),
    task({ restart: { window: negative } }),
    task(
      { placement: { constraints: ["node.labels.zone"] } },
      better(/^UNKNOWN constraint expected/, /^INVALID_ARGUMENT constraint expected/),
    ),
    container({ secrets: [{ secretId: "x" }] }),
    container({ secrets: [{ secretId: "x", secretName: "y" }] }),
    container({ secrets: [{ secretId: "x", secretName: "y", file: {} }] }),
    container({
      secrets: [
        { secretId: "x", secretName: "y", file: { name: "f" } },
        { secretId: "z", secretName: "w", file: { name: "f" } },
      ],
    }),
    container({ configs: [{ configId: "x" }] }),
    container({ configs: [{ configId: "x", configName: "y" }] }),
    container({ configs: [{ configId: "x", configName: "y", file: {} }] }),
    container({ privileges: { credentialSpec: { config: "x" } } }),
    bad({ task: {} }),
    bad({ task: { attachment: { containerId: "x" } } }),
    bad({ task: { generic: { kind: "ab" } } }),
    bad({ task: { generic: { kind: "container" } } }),
    bad({ task: { generic: { kind: "abc" } } }),
    bad({ task: { generic: { kind: "abc", payload: {} } } }),
    bad({ task: { generic: { kind: "abc", payload: { type_url: "x" } } } }),
    container({ image: "" }),
    container({ image: "A B" }),
    container({ image: "UPPER" }),
    container({ mounts: [{ target: "/a" }, { target: "/a" }] }),
    container({ healthcheck: { interval: { nanos: 1 } } }),
    container({ healthcheck: { timeout: { nanos: 1 } } }),
    container({ healthcheck: { startPeriod: { nanos: 1 } } }),
    container({ healthcheck: { retries: -1 } }),
    container(
      { env: ["A={{.Nothing}}"] },
      better(/^INVALID_ARGUMENT expanding env failed/, /^INVALID_ARGUMENT expanding/),
    ),
    container({ hostname: "{{" }, better(/^INVALID_ARGUMENT expanding hostname failed/, /^INVALID_ARGUMENT expanding/)),
    bad({ replicated: { replicas: -1 } }),
    bad({ ...noMode, ...job, update: {} }),
    bad({ ...noMode, replicatedJob: { maxConcurrent: -1 } }),
    bad({ ...noMode, replicatedJob: { totalCompletions: -1 } }),
    bad({ ...noMode, globalJob: {}, update: { parallelism: 1 } }),
    bad({ update: { delay: negative } }),
    bad({ update: { monitor: negative } }),
    bad({ update: { maxFailureRatio: 1.5 } }),
    bad({ update: { maxFailureRatio: -0.5 } }),
    bad({ endpoint: { mode: "DNSRR", ports: [{ targetPort: 80 }] } }),
    bad({
      endpoint: {
        ports: [
          { targetPort: 80, publishedPort: 80 },
          { targetPort: 81, publishedPort: 80 },
        ],
      },
    }),
    step("ListNetworks", { filters: { names: ["ingress"] } }),
    step("CreateService", (side) => ({
      spec: {
        annotations: { name: "bad" },
        replicated: {},
        task: { container: { image: "bb:1" }, networks: [{ target: side.id("ingress") }] },
      },
    })),
    bad({ annotations: { name: "" } }),
    bad({ annotations: { name: "a_" } }),
    bad({ annotations: { name: "a".repeat(64) } }),
    step("UpdateService", {}),
    step("ListServices", {}),
  ];
});

// A swarmd ends in a panic when a volume is made: it has no plugins. What comes before that can be compared.
add("volumes: what is refused", () => {
  const create = (name: string, more: Json): Step =>
    step("CreateVolume", {
      spec: { annotations: { name }, driver: { name: "d" }, accessMode: { mount: {} }, ...more },
    });
  return [
    step("CreateVolume", {}),
    create("", {}),
    create("v", { driver: null }),
    create("v", { accessMode: null }),
    create("v", { accessMode: {} }),
    create("v", { secrets: [{ key: "k", secret: "nothing" }] }),
    create("v", {
      secrets: [
        { key: "k", secret: "nothing" },
        { key: "l", secret: "nobody" },
      ],
    }),
    step("GetVolume", {}),
    step("GetVolume", { volumeId: "x" }),
    step("UpdateVolume", {}),
    step("UpdateVolume", { volumeId: "x" }),
    step("UpdateVolume", { volumeId: "x", spec: {} }),
    step("UpdateVolume", { volumeId: "x", spec: {}, volumeVersion: {} }),
    step("RemoveVolume", {}),
    step("RemoveVolume", { volumeId: "x" }),
    step("RemoveVolume", { volumeId: "x", force: true }),
    step("ListVolumes", {}),
    step("ListVolumes", { filters: { names: ["v"], groups: ["g"], drivers: ["d"] } }),
  ];
});
