/** Requests about everything except services. */
import { base64, group, labels, step, type Json, type Side, type Step, type StepGroup } from "./control-side.ts";

/** `{ nodeId: "x", … }` for a method such as GetNode, with an empty version if its request has one. */
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

export const objectSteps: readonly StepGroup[] = [
  group("requests that name no object, or an unknown one", () => {
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
  }),
  group("secrets and configs: creation, updates, filters and removal", () => {
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
  }),
  group("secrets and configs of a service must exist, and cannot be removed while it uses them", () => {
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
  }),
  group("extensions and resources", () => {
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
        // Swarm searches for resources with the extension's id, finds none, and is stopped by its store.
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
          // Some selectors would distinguish two kinds that differ only in case, and others would not.
          ours: /^ALREADY_EXISTS extension Service already exists$/,
        },
      ),
    ];
  }),
  group("networks: creation, filters and removal", () => {
    const create = (name: string, more: Json = {}, differs: Step["differs"] = null): Step =>
      step("CreateNetwork", { spec: { annotations: { name, labels }, ...more } }, differs);
    const subnet = (config: Json): Json => ({ ipam: { configs: [config] } });
    const unknownPlugin = {
      stock: /^INVALID_ARGUMENT plugin nobody not supported$/,
      // The answer of a manager that can have plugins, as dockerd can.
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
  }),
  group("the cluster: updates and filters", () => {
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
  }),
  // A swarmd panics when a volume is created: it has no plugins. Only what comes before that can be compared.
  group("volumes: rejected requests", () => {
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
  }),
];
