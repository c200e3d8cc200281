/** Requests to Docker's Engine API that are wrong in one way each, for a stock engine and a manager. */

export interface EngineRequest {
  readonly method: string;
  /** With the version. */
  readonly path: string;
  readonly body?: string;
  readonly contentType?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** The first version of the API that refuses it. */
  readonly since?: string;
  /** The answer of a manager where it differs from a stock engine on purpose, and the reason. */
  readonly ours?: { readonly status: number; readonly text: RegExp; readonly why: string };
}

const v = "/v1.41";
const get = (path: string): EngineRequest => ({ method: "GET", path: v + path });
const remove = (path: string): EngineRequest => ({ method: "DELETE", path: v + path });
const post = (path: string, body: unknown = {}): EngineRequest => ({
  method: "POST",
  path: v + path,
  body: typeof body === "string" ? body : JSON.stringify(body),
});
const filtered = (path: string, filters: unknown): EngineRequest =>
  get(`${path}?filters=${encodeURIComponent(typeof filters === "string" ? filters : JSON.stringify(filters))}`);

const container = { Image: "bb:1" };
const spec = { Name: "wrong", TaskTemplate: { ContainerSpec: container } };
const inContainer = (fields: object): EngineRequest =>
  post("/services/create", { Name: "wrong", TaskTemplate: { ContainerSpec: { ...container, ...fields } } });
const inTask = (fields: object): EngineRequest =>
  post("/services/create", { Name: "wrong", TaskTemplate: { ContainerSpec: container, ...fields } });
const inSpec = (fields: object): EngineRequest => post("/services/create", { ...spec, ...fields });

function differing(request: EngineRequest, status: number, text: RegExp, why: string): EngineRequest {
  return { ...request, ours: { status, text, why } };
}

function refusedSince(since: string, request: EngineRequest): EngineRequest {
  return { ...request, since };
}

const paths: readonly EngineRequest[] = [
  { method: "GET", path: "/nope" },
  ...["info", "services"].flatMap((path) => [
    differing(
      { method: "GET", path: `/v9.99/${path}` },
      400,
      /^.{2}message":"client version 9\.99 is too new\. Maximum supported API version is 1\.55"/,
      "newer versions are served",
    ),
    differing(
      { method: "GET", path: `/v1.11/${path}` },
      400,
      /^client version 1\.11 is too old\. Minimum supported API version is 1\.24, please upgrade your client to a newer version$/m,
      "older versions are served",
    ),
  ]),
  { method: "GET", path: "/v1.x/info" },
  { method: "GET", path: "/v/info" },
  get("/nope"),
  get("/services/"),
  get("/services/a/b/c"),
  { method: "GET", path: "/vx/info" },
  { method: "GET", path: "/v1.41" },
  { method: "PUT", path: `${v}/services/x` },
  { method: "PATCH", path: `${v}/nodes/x` },
  post("/services"),
  remove("/services"),
  remove("/swarm"),
  post("/nodes/x"),
  get("/secrets/create/x"),
];

const prunes: readonly EngineRequest[] = [
  { until: ["odd"] },
  { until: [""] },
  { until: ["1.x"] },
  { until: ["1:2"] },
  { until: ["24h", "1h"] },
  { odd: ["1"], until: ["odd"] },
  { dangling: ["true"] },
].map((each) => ({ ...filtered("/networks/prune", each), method: "POST" }));

const usages: readonly EngineRequest[] = ["odd", "", "image&type=odd"].map((type) =>
  refusedSince("1.42", get(`/system/df?type=${type}`)),
);

const missing: readonly EngineRequest[] = [
  ...["services", "nodes", "tasks", "secrets", "configs", "networks"].map((kind) => get(`/${kind}/absent`)),
  ...["services", "nodes", "secrets", "configs", "networks"].map((kind) => remove(`/${kind}/absent`)),
  ...["secrets", "configs"].map((kind) => post(`/${kind}/absent/update?version=1`, {})),
  get("/volumes/absent"),
  remove("/volumes/absent"),
  refusedSince("1.42", { method: "PUT", path: `${v}/volumes/absent?version=1`, body: "{}" }),
  post("/services/absent/update?version=1", spec),
  post("/nodes/absent/update?version=1", { Role: "worker", Availability: "active" }),
  get("/services/absent/logs?stdout=1"),
  get("/tasks/absent/logs?stdout=1"),
  filtered("/tasks", { service: ["absent"] }),
  filtered("/tasks", { node: ["absent"] }),
];

const versions: readonly EngineRequest[] = ["", "?version=", "?version=x", "?version=-1", "?version=1.5"].flatMap(
  (query) => [
    post(`/services/known/update${query}`, spec),
    post(`/nodes/absent/update${query}`, { Role: "worker", Availability: "active" }),
    post(`/secrets/absent/update${query}`, {}),
    post(`/configs/absent/update${query}`, {}),
    post(`/swarm/update${query}`, {}),
  ],
);

const filters: readonly EngineRequest[] = ["services", "nodes", "tasks", "secrets", "configs", "networks"].flatMap(
  (kind) => [
    filtered(`/${kind}`, "x"),
    filtered(`/${kind}`, "{"),
    filtered(`/${kind}`, "[]"),
    filtered(`/${kind}`, { name: "a" }),
    filtered(`/${kind}`, { name: { a: 1 } }),
    filtered(`/${kind}`, { unknown: ["a"] }),
  ],
);

const words: readonly EngineRequest[] = [
  filtered("/nodes", { role: ["boss"] }),
  filtered("/nodes", { membership: ["none"] }),
  filtered("/tasks", { "desired-state": ["asleep"] }),
  filtered("/networks", { type: ["strange"] }),
  get("/services?status=perhaps"),
  get("/services/known?insertDefaults=perhaps"),
  post("/services/known/update?version=1&rollback=next", spec),
  post("/services/known/update?version=1&registryAuthFrom=friend", spec),
  post("/services/known/update?version=1&registryAuthFrom=previous-spec", spec),
  post("/swarm/update?version=1&rotateWorkerToken=perhaps", {}),
  post("/swarm/update?version=1&rotateManagerToken=perhaps", {}),
  post("/swarm/update?version=1&rotateManagerUnlockKey=perhaps", {}),
  post("/swarm/update?version=1", { Name: "other" }),
  post("/swarm/update?version=1", {}),
  post("/nodes/absent/update?version=1", {}),
  post("/nodes/absent/update?version=1", { Role: "boss", Availability: "active" }),
  post("/nodes/absent/update?version=1", { Role: "worker", Availability: "asleep" }),
  post("/services/known/update?version=1", spec),
  post("/services/known/update?version=1", { ...spec, Name: "known" }),
  get("/services/known/logs"),
  get("/services/known/logs?stdout=0&stderr=no"),
  get("/services/known/logs?stdout=1&tail=x"),
  get("/services/known/logs?stdout=1&tail=-1"),
  get("/services/known/logs?stdout=1&since=x"),
];

const texts: readonly EngineRequest[] = [
  "",
  "{",
  "{}",
  "null",
  "[]",
  '"x"',
  "3",
  "true",
  "{]",
  '{"Name"}',
  '{"Name":}',
  '{"Name":"a",}',
  '{"Name":"a" "b"}',
  '{"Name":"a\\q"}',
  '{"Name":"a\\u12g4"}',
  '{"Name":"a\nb"}',
  '{"Name":tru}',
  '{"Name":nul}',
  '{"Name":-}',
  '{"Name":1.}',
  '{"Name":1e}',
  '{"Name":01}',
  "{'Name':1}",
  '{"Name":["a",]}',
  '{"TaskTemplate":{"ContainerSpec":{"Image":"x"}',
  "x",
  "\u00e9",
].flatMap((body) => [post("/services/create", body), post("/secrets/create", body)]);

const types: readonly EngineRequest[] = [
  ...[3, true, [], {}].map((Name) => inSpec({ Name })),
  inSpec({ Labels: "a" }),
  inSpec({ Labels: { a: 1 } }),
  inSpec({ Labels: { a: [] } }),
  post("/services/create", { name: 3 }),
  inSpec({ TaskTemplate: [] }),
  inSpec({ TaskTemplate: "x" }),
  inSpec({ Mode: "x" }),
  inSpec({ Mode: { Replicated: 3 } }),
  inSpec({ Mode: { Replicated: { Replicas: "3" } } }),
  inSpec({ Mode: { Replicated: { Replicas: -1 } } }),
  inSpec({ Mode: { Replicated: { Replicas: 1.5 } } }),
  inSpec({ Mode: { ReplicatedJob: { TotalCompletions: "x" } } }),
  inSpec({ UpdateConfig: 3 }),
  inSpec({ UpdateConfig: { Parallelism: -2 } }),
  inSpec({ UpdateConfig: { Delay: "3s" } }),
  inSpec({ UpdateConfig: { MaxFailureRatio: "x" } }),
  inSpec({ UpdateConfig: { FailureAction: 3 } }),
  inSpec({ RollbackConfig: { Monitor: "x" } }),
  inSpec({ Networks: {} }),
  inSpec({ Networks: [3] }),
  inSpec({ EndpointSpec: { Ports: {} } }),
  inSpec({ EndpointSpec: { Ports: [{ TargetPort: "80" }] } }),
  inSpec({ EndpointSpec: { Ports: [{ TargetPort: -80 }] } }),
  inSpec({ EndpointSpec: { Ports: [{ PublishedPort: 4294967296 }] } }),
  inSpec({ EndpointSpec: { Ports: [{ Protocol: 3 }] } }),
  inSpec({ EndpointSpec: { Mode: 3 } }),
  inContainer({ Image: 3 }),
  inContainer({ Env: "a" }),
  inContainer({ Env: [3] }),
  inContainer({ Command: "a" }),
  inContainer({ Args: {} }),
  inContainer({ Labels: { a: 3 } }),
  inContainer({ Mounts: {} }),
  inContainer({ Mounts: [{ Type: 3 }] }),
  inContainer({ Mounts: [{ ReadOnly: "yes" }] }),
  inContainer({ Mounts: [{ BindOptions: "x" }] }),
  inContainer({ Mounts: [{ BindOptions: { Propagation: 3 } }] }),
  inContainer({ Mounts: [{ TmpfsOptions: { SizeBytes: "x" } }] }),
  inContainer({ Mounts: [{ TmpfsOptions: { Mode: -1 } }] }),
  inContainer({ Mounts: [{ VolumeOptions: { DriverConfig: { Options: [] } } }] }),
  inContainer({ StopGracePeriod: "3s" }),
  inContainer({ Secrets: [{ File: { Mode: -1 } }] }),
  inContainer({ Secrets: [{ SecretID: 3 }] }),
  inContainer({ Configs: [{ File: { UID: 3 } }] }),
  inContainer({ Healthcheck: { Interval: "x" } }),
  inContainer({ Healthcheck: { Test: "x" } }),
  inContainer({ Healthcheck: { Retries: 1.5 } }),
  inContainer({ TTY: 1 }),
  inContainer({ Init: "x" }),
  inContainer({ DNSConfig: { Nameservers: "x" } }),
  inContainer({ Privileges: { SELinuxContext: { Disable: "x" } } }),
  inContainer({ Ulimits: [{ Soft: "x" }] }),
  inContainer({ Sysctls: [] }),
  inTask({ Resources: { Limits: { NanoCPUs: "x" } } }),
  inTask({ Resources: { Limits: { MemoryBytes: 1.5 } } }),
  inTask({ Resources: { Reservations: { GenericResources: [{ DiscreteResourceSpec: { Value: "x" } }] } } }),
  inTask({ RestartPolicy: { MaxAttempts: -1 } }),
  inTask({ RestartPolicy: { Delay: true } }),
  inTask({ Placement: { Constraints: "x" } }),
  inTask({ Placement: { Preferences: [{ Spread: "x" }] } }),
  inTask({ Placement: { MaxReplicas: -1 } }),
  inTask({ LogDriver: { Options: { a: 3 } } }),
  inTask({ ForceUpdate: -1 }),
  inTask({ Networks: [{ Aliases: "x" }] }),
  post("/secrets/create", { Name: 3 }),
  post("/secrets/create", { Data: 3 }),
  post("/secrets/create", { Name: "a", Data: "###" }),
  post("/secrets/create", { Name: "a", Data: "YQ=" }),
  post("/configs/create", { Data: [] }),
  post("/configs/create", { Templating: "x" }),
  post("/swarm/update?version=1", { Raft: { ElectionTick: "x" } }),
  post("/swarm/update?version=1", { CAConfig: { ExternalCAs: {} } }),
  post("/swarm/update?version=1", { EncryptionConfig: { AutoLockManagers: "x" } }),
  post("/nodes/absent/update?version=1", { Role: 3 }),
  post("/nodes/absent/update?version=1", { Labels: [] }),
];

const values: readonly EngineRequest[] = [
  inContainer({ Image: "" }),
  inContainer({ Mounts: [{ Type: "strange" }] }),
  inContainer({ Mounts: [{ Type: "bind", Source: "/a", Target: "/a", BindOptions: { Propagation: "odd" } }] }),
  inContainer({ Configs: [{ ConfigID: "x", ConfigName: "x" }] }),
  inContainer({ Configs: [{ ConfigID: "x", ConfigName: "x", File: { Name: "a" }, Runtime: {} }] }),
  inContainer({ Privileges: { CredentialSpec: {} } }),
  inContainer({ Privileges: { CredentialSpec: { File: "a", Registry: "b" } } }),
  inContainer({ Privileges: { CredentialSpec: { Config: "c", File: "a", Registry: "b" } } }),
  inTask({ Runtime: "strange" }),
  inTask({ RestartPolicy: { Condition: "perhaps" } }),
  inTask({ Networks: [{ Target: "absent" }] }),
  differing(inTask({ Placement: { Constraints: ["odd"] } }), 400, /constraint expected/, "a mistake of the client"),
  inTask({ Resources: { Limits: { NanoCPUs: 1 } } }),
  inTask({ Resources: { Limits: { MemoryBytes: 1 } } }),
  inSpec({ UpdateConfig: { FailureAction: "cry" } }),
  inSpec({ UpdateConfig: { Order: "random" } }),
  inSpec({ UpdateConfig: { MaxFailureRatio: 2 } }),
  inSpec({ EndpointSpec: { Mode: "magic" } }),
  differing(
    inSpec({ Name: "ports", EndpointSpec: { Ports: [{ TargetPort: 80, PublishedPort: 70000 }] } }),
    400,
    /invalid port 70000/,
    "a stock manager accepts it, and no node can publish it",
  ),
  inSpec({ EndpointSpec: { Mode: "dnsrr", Ports: [{ TargetPort: 80, PublishedPort: 8080 }] } }),
  inSpec({ Mode: { Global: {}, Replicated: {} } }),
  inSpec({ Name: "a b" }),
  inSpec({ Name: "a".repeat(70) }),
  inSpec({ Name: "known" }),
  post("/services/create", { Name: "wrong", TaskTemplate: { Runtime: "plugin" } }),
  post("/secrets/create", { Name: "a b", Data: "YQ==" }),
  post("/secrets/create", { Name: "", Data: "YQ==" }),
  post("/secrets/create", { Name: "empty", Data: "" }),
  post("/secrets/create", { Name: "known", Data: "YQ==" }),
  post("/configs/create", { Name: "known", Data: "YQ==" }),
  post("/secrets/known/update?version=1", { Name: "other" }),
  post("/configs/known/update?version=1", { Name: "other" }),
  post("/networks/create", { Name: "" }),
  post("/networks/create", { Name: "host", Driver: "overlay" }),
  post("/networks/create", { Name: "known", Driver: "overlay" }),
  post("/networks/create", { Name: "a b", Driver: "overlay" }),
  post("/networks/create", { Name: "n", Driver: "strange" }),
  differing(
    post("/networks/create", { Name: "n", Driver: "overlay", IPAM: { Config: [{ Subnet: "strange" }] } }),
    400,
    /invalid subnet strange/,
    "a mistake of the client",
  ),
  post("/networks/create", { Name: 3 }),
  ...[
    { Name: "a b", EnableIPv4: false },
    { Name: "n", EnableIPv4: false },
    { Name: "n", Options: { "com.docker.network.enable_ipv4": "false" } },
    { Name: "n", Options: { "com.docker.network.enable_ipv4": "odd" } },
    { Name: "n", EnableIPv4: false, Options: { "com.docker.network.enable_ipv6": "odd" } },
    { Name: "known", EnableIPv4: false },
    { Name: "n", EnableIPv4: false, Driver: "strange" },
  ].map((fields) => refusedSince("1.48", post("/networks/create", { Driver: "overlay", ...fields }))),
  ...[1, 999_999, -5].map((StartInterval) =>
    refusedSince("1.44", inContainer({ Healthcheck: { Test: ["CMD", "true"], StartInterval } })),
  ),
  { ...post("/networks/create", { Name: "n" }), contentType: "text/plain" },
  post("/swarm/init", {}),
  post("/swarm/join", {}),
  post("/swarm/unlock", { UnlockKey: "x" }),
  ...["init", "join", "unlock"].flatMap((verb) => [
    ...["", "{", "[]", "3", '"x"', "null"].map((text) => post(`/swarm/${verb}`, text)),
    { ...post(`/swarm/${verb}`, {}), contentType: "text/plain" },
  ]),
  ...[
    "services/create",
    "services/known/update?version=1",
    "secrets/create",
    "configs/create",
    "swarm/update?version=1",
  ].map((path) => refusedSince("1.42", { ...post(`/${path}`, {}), contentType: "text/plain" })),
  ...[{ UnlockKey: 3 }, { unlockkey: ["x"] }, { UnlockKey: null }].map((fields) => post("/swarm/unlock", fields)),
  ...[
    { ListenAddr: 3 },
    { AdvertiseAddr: {} },
    { DataPathAddr: true },
    { DataPathPort: -1 },
    { ForceNewCluster: "x" },
    { Spec: [] },
    { Spec: { Raft: { ElectionTick: "x" } } },
    { AutoLockManagers: 1 },
    { Availability: 3 },
    { DefaultAddrPool: "10.0.0.0/8" },
    { SubnetSize: 1.5 },
  ].map((fields) => post("/swarm/init", fields)),
  ...[
    { ListenAddr: 3 },
    { AdvertiseAddr: [] },
    { DataPathAddr: 3 },
    { RemoteAddrs: "x" },
    { RemoteAddrs: [3] },
    { JoinToken: 3 },
    { Availability: {} },
  ].map((fields) => post("/swarm/join", fields)),
];

const ofImages: readonly EngineRequest[] = ["{", "[]", { nope: ["x"] }, { until: 3 }, { Dangling: ["true"] }].map(
  (given) => filtered("/images/json", given),
);

const inContainers: readonly EngineRequest[] = [
  ...["json", "top", "stats", "logs?stdout=1"].map((path) => get(`/containers/absent/${path}`)),
  ...["wait", "kill", "kill?signal=HUP"].map((path) => post(`/containers/absent/${path}`, "")),
  ...["attach", "attach?stream=1&stdout=1"].map((path) =>
    differing(
      post(`/containers/absent/${path}`, ""),
      404,
      /"No such container: absent"/,
      "a stock engine calls the sentence a raw stream",
    ),
  ),
  post("/containers/absent/exec", { Cmd: ["true"] }),
  post("/containers/absent/exec", { Cmd: [] }),
  post("/containers/absent/exec", {}),
  { ...post("/containers/absent/exec", { Cmd: ["true"] }), contentType: "text/plain" },
  get("/exec/absent/json"),
  post("/exec/absent/start", {}),
  post("/exec/absent/start", { Detach: true }),
  { ...post("/exec/absent/start", {}), contentType: "text/plain" },
  post("/exec/absent/resize?h=10&w=20", ""),
  post("/exec/absent/resize?h=10", ""),
  post("/exec/absent/resize?h=ten&w=20", ""),
];

export const wrongRequests: readonly EngineRequest[] = [
  ...paths,
  ...missing,
  ...versions,
  ...prunes,
  ...usages,
  ...filters,
  ...words,
  ...texts,
  ...types,
  ...values,
  ...ofImages,
  ...inContainers,
];
