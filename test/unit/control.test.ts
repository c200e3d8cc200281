import test from "ava";
import { bootstrapCluster } from "../../actors/manager/bootstrap.ts";
import {
  Annotations,
  Certificate,
  ConfigSpec,
  ContainerSpec,
  ControlService,
  CreateConfigRequest,
  CreateExtensionRequest,
  CreateNetworkRequest,
  CreateResourceRequest,
  CreateSecretRequest,
  CreateServiceRequest,
  EndpointSpec,
  FileTarget,
  GetClusterRequest,
  GetNodeRequest,
  GetSecretRequest,
  GetServiceRequest,
  KeyRotation,
  ListNodesRequest,
  ListNodesRequest_Filters,
  ListSecretsRequest,
  ListServiceStatusesRequest,
  ListServicesRequest,
  ListServicesRequest_Filters,
  ListTasksRequest,
  ListTasksRequest_Filters,
  Manager,
  NetworkAttachment,
  NetworkAttachmentConfig,
  NetworkSpec,
  Node,
  NodeRole,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  PortConfig,
  PortConfig_PublishMode,
  RemoveExtensionRequest,
  RemoveNetworkRequest,
  RemoveNodeRequest,
  RemoveResourceRequest,
  RemoveSecretRequest,
  RemoveServiceRequest,
  SecretReference,
  SecretSpec,
  type Service,
  ServiceSpec,
  Session,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  UpdateClusterRequest,
  UpdateConfigRequest,
  UpdateNodeRequest,
  type UpdateServiceRequest,
  UpdateServiceRequest_Rollback,
  UpdateStatus_UpdateState,
  Version,
} from "../../proto/gen/messages.ts";
import type { TableName } from "../../proto/table-names.ts";
import * as pki from "../../lib/pki/index.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { createdService, spec, updateOf, workerNode, world } from "../support/control.ts";
import { call, refusalOf } from "../support/manager.ts";

test("every method of the Control service has a handler", (t) => {
  const { control } = world();
  for (const name of Object.keys(ControlService.methods)) t.is(typeof control[name as "GetNode"], "function", name);
});

test("a create returns the service with its id and version, and it can be read at once", async (t) => {
  const { control, store } = world();
  const service = await createdService(control, spec("web"));
  t.regex(service.id, /^[0-9a-z]{25}$/);
  t.is(service.meta?.version?.index, store.version);
  t.is(service.specVersion?.index, 0);
  const read = await control.GetService(GetServiceRequest.create({ serviceId: service.id }), call());
  t.is(read.service?.spec?.annotations?.name, "web");
  t.is(read.service?.spec?.task?.restart, null);
});

test("defaults are shown on request, and not stored", async (t) => {
  const { control, store } = world();
  const { id } = await createdService(control, spec("web"));
  const { service } = await control.GetService(
    GetServiceRequest.create({ serviceId: id, insertDefaults: true }),
    call(),
  );
  t.is(service?.spec?.task?.container?.stopGracePeriod?.seconds, 10);
  t.is(service?.spec?.task?.restart?.delay?.seconds, 5);
  t.is(service?.spec?.update?.monitor?.seconds, 5);
  t.is(store.get("service", id)?.spec?.update, null);
});

test("a name that differs only in case conflicts, and nothing is changed", async (t) => {
  const { control, store } = world();
  await createdService(control, spec("web"));
  const { version } = store;
  t.deepEqual(
    await refusalOf(() => control.CreateService(CreateServiceRequest.create({ spec: spec("WEB") }), call())),
    {
      code: Status.ALREADY_EXISTS,
      message: "name conflicts with an existing object: service WEB already exists",
    },
  );
  t.is(store.version, version);
});

test("an invalid spec proposes nothing", async (t) => {
  const { control, manager } = world();
  const refusal = await refusalOf(() =>
    control.CreateService(CreateServiceRequest.create({ spec: spec("a.b") }), call()),
  );
  t.is(refusal?.code, Status.INVALID_ARGUMENT);
  t.is(manager.proposals.length, 0);
});

test("without a leader a write is UNAVAILABLE, and a read is answered", async (t) => {
  const { control, manager } = world();
  manager.leaderless = true;
  const refusal = await refusalOf(() =>
    control.CreateService(CreateServiceRequest.create({ spec: spec("web") }), call()),
  );
  t.is(refusal?.code, Status.UNAVAILABLE);
  t.regex(refusal?.message ?? "", /no leader/);
  t.deepEqual((await control.ListServices(ListServicesRequest.create({}), call())).services, []);
});

test("an update keeps the previous spec, and rolls back to it and forward again", async (t) => {
  const { control } = world();
  const first = await createdService(control, spec("web", 1, "bb:1"));
  const { service: second } = await control.UpdateService(updateOf(first, { spec: spec("web", 1, "bb:2") }), call());
  t.is(second?.previousSpec?.task?.container?.image, "bb:1");
  t.deepEqual(second?.specVersion, first.meta?.version);
  const PREVIOUS = UpdateServiceRequest_Rollback.PREVIOUS;
  const { service: third } = await control.UpdateService(updateOf(second as Service, { rollback: PREVIOUS }), call());
  t.is(third?.spec?.task?.container?.image, "bb:1");
  t.is(third?.updateStatus?.state, UpdateStatus_UpdateState.ROLLBACK_STARTED);
  t.is(third?.updateStatus?.message, "manually requested rollback");
  const { service: fourth } = await control.UpdateService(updateOf(third as Service, { rollback: PREVIOUS }), call());
  t.is(fourth?.spec?.task?.container?.image, "bb:2");
});

test("an update that changes nothing keeps the previous spec", async (t) => {
  const { control } = world();
  const first = await createdService(control, spec("web", 1, "bb:1"));
  const { service: second } = await control.UpdateService(updateOf(first, { spec: spec("web", 1, "bb:2") }), call());
  const { service: third } = await control.UpdateService(updateOf(second as Service, {}), call());
  t.is(third?.previousSpec?.task?.container?.image, "bb:1");
  t.is(third?.updateStatus, null);
});

test("an update of an old version is out of sequence", async (t) => {
  const { control } = world();
  const first = await createdService(control, spec("web"));
  await control.UpdateService(updateOf(first, { spec: spec("web", 2) }), call());
  t.deepEqual(await refusalOf(() => control.UpdateService(updateOf(first, { spec: spec("web", 3) }), call())), {
    code: Status.ABORTED,
    message: "update out of sequence",
  });
});

test("mode and name cannot be changed, and a rollback needs a previous spec", async (t) => {
  const { control } = world();
  const service = await createdService(control, spec("web"));
  const refusal = (fields: Partial<UpdateServiceRequest>) =>
    refusalOf(() => control.UpdateService(updateOf(service, fields), call()));
  const global = ServiceSpec.patch(spec("web"), { replicated: null, global: {} });
  t.is((await refusal({ spec: global }))?.message, "service mode change is not allowed");
  t.is((await refusal({ spec: spec("web2") }))?.message, "renaming services is not supported");
  t.is((await refusal({ serviceVersion: null }))?.message, "invalid argument");
  t.is((await refusal({ serviceId: "x" }))?.code, Status.NOT_FOUND);
  const back = await refusal({ rollback: UpdateServiceRequest_Rollback.PREVIOUS });
  t.is(back?.code, Status.FAILED_PRECONDITION);
});

test("a service-level network list, as old clients wrote it, can change only by moving to the tasks", async (t) => {
  const { control } = world();
  const targets: string[] = [];
  for (const name of ["front", "back"]) {
    const network = NetworkSpec.create({ annotations: Annotations.create({ name }) });
    const created = await control.CreateNetwork(CreateNetworkRequest.create({ spec: network }), call());
    targets.push(created.network?.id ?? "");
  }
  const [front, back] = targets.map((target) => NetworkAttachmentConfig.create({ target }));
  if (front === undefined || back === undefined) throw new Error("no networks");
  const legacy = ServiceSpec.patch(spec("web"), { networks: [front] });
  let service = await createdService(control, legacy);
  const update = async (wanted: ServiceSpec) => {
    const answer = await control.UpdateService(updateOf(service, { spec: wanted }), call());
    service = answer.service ?? service;
  };
  for (const networks of [[front, back], [back], []]) {
    t.deepEqual(
      await refusalOf(() => update(ServiceSpec.patch(legacy, { networks }))),
      { code: Status.UNIMPLEMENTED, message: "networks must be migrated to TaskSpec before being changed" },
      `${networks.length} networks`,
    );
  }
  // Everything else may change, and so may they once the tasks have their own networks.
  await update(ServiceSpec.patch(legacy, { replicated: { replicas: 2 } }));
  const task = TaskSpec.patch(legacy.task ?? TaskSpec.create(), { networks: [front, back] });
  const moved = ServiceSpec.patch(legacy, { task, networks: [] });
  await update(moved);
  t.deepEqual(service.spec?.networks, []);
  await update(ServiceSpec.patch(moved, { task: TaskSpec.patch(task, { networks: [back] }) }));
  t.deepEqual(
    service.spec?.task?.networks.map(({ target }) => target),
    [back.target],
  );
});

test("when two services request one ingress port at once, one is rejected", async (t) => {
  const { control } = world();
  const network = NetworkSpec.create({ annotations: Annotations.create({ name: "ingress" }), ingress: true });
  await control.CreateNetwork(CreateNetworkRequest.create({ spec: network }), call());
  const publishing = (name: string) =>
    ServiceSpec.patch(spec(name), {
      endpoint: EndpointSpec.create({ ports: [PortConfig.create({ publishedPort: 80 })] }),
    });
  const results = await Promise.all(
    ["a", "b"].map((name) =>
      refusalOf(() => control.CreateService(CreateServiceRequest.create({ spec: publishing(name) }), call())),
    ),
  );
  t.is(results[0], null);
  t.regex(results[1]?.message ?? "", /port '80' is already in use by service 'a'/);
});

test("an ingress port needs an ingress network, a host port does not", async (t) => {
  const { control } = world();
  const published = (publishMode: PortConfig_PublishMode) =>
    ServiceSpec.patch(spec("web"), {
      endpoint: EndpointSpec.create({ ports: [PortConfig.create({ publishedPort: 80, publishMode })] }),
    });
  const { INGRESS, HOST } = PortConfig_PublishMode;
  const refusal = await refusalOf(() =>
    control.CreateService(CreateServiceRequest.create({ spec: published(INGRESS) }), call()),
  );
  t.deepEqual(refusal, {
    code: Status.FAILED_PRECONDITION,
    message: "service needs ingress network, but no ingress network is present",
  });
  await createdService(control, published(HOST));
});

test("services are found by name prefix, label and runtime; all filters must match", async (t) => {
  const { control } = world();
  await createdService(control, spec("web1"));
  await createdService(control, spec("web2"));
  await createdService(control, spec("db"));
  const names = async (filters: Partial<ListServicesRequest_Filters>): Promise<readonly string[]> => {
    const request = ListServicesRequest.create({ filters: ListServicesRequest_Filters.create(filters) });
    const { services } = await control.ListServices(request, call());
    return services.map((service) => service.spec?.annotations?.name ?? "");
  };
  t.deepEqual(await names({ namePrefixes: ["web"] }), ["web1", "web2"]);
  t.deepEqual(await names({ names: ["db", "web1"], labels: { team: "" } }), ["web1", "db"]);
  t.deepEqual(await names({ names: ["WEB1"] }), []);
  t.deepEqual(await names({ labels: { team: "b" } }), []);
  t.deepEqual(await names({ runtimes: ["exec"] }), []);
});

test("only wanted tasks on nodes that are not down count as running", async (t) => {
  const { control, seed } = world();
  const service = await createdService(control, spec("web", 3));
  const node = (id: string, state: NodeStatus_State) => Node.create({ id, status: NodeStatus.create({ state }) });
  seed("node", node("up", NodeStatus_State.READY), node("down", NodeStatus_State.DOWN));
  const task = (id: string, nodeId: string, desiredState: TaskState) =>
    Task.create({
      id,
      nodeId,
      desiredState,
      serviceId: service.id,
      status: TaskStatus.create({ state: TaskState.RUNNING }),
    });
  seed(
    "task",
    task("t1", "up", TaskState.RUNNING),
    task("t2", "down", TaskState.RUNNING),
    task("t3", "up", TaskState.SHUTDOWN),
    task("t4", "gone", TaskState.RUNNING),
  );
  const request = ListServiceStatusesRequest.create({ services: [service.id, "unknown"] });
  const { statuses } = await control.ListServiceStatuses(request, call());
  t.deepEqual(
    statuses.map(({ desiredTasks, runningTasks }) => [desiredTasks, runningTasks]),
    [
      [3, 1],
      [0, 0],
    ],
  );
});

test("tasks are listed by service, node, desired state, computed name and whether they are up to date", async (t) => {
  const { control, seed } = world();
  const service = await createdService(control, spec("web"));
  const task = (id: string, fields: Partial<Task>) =>
    Task.create({
      id,
      slot: 1,
      serviceId: service.id,
      serviceAnnotations: Annotations.create({ name: "web" }),
      ...fields,
    });
  seed(
    "task",
    task("t1", { nodeId: "n1", desiredState: TaskState.RUNNING, specVersion: Version.create({}) }),
    task("t2", {
      nodeId: "n2",
      desiredState: TaskState.SHUTDOWN,
      specVersion: Version.create({ index: 9 }),
      spec: TaskSpec.create({}),
    }),
    task("t3", { serviceId: "", nodeId: "n1" }),
  );
  const ids = async (filters: Partial<ListTasksRequest_Filters>) => {
    const request = ListTasksRequest.create({ filters: ListTasksRequest_Filters.create(filters) });
    return (await control.ListTasks(request, call())).tasks.map(({ id }) => id);
  };
  t.deepEqual(await ids({ serviceIds: [service.id] }), ["t1", "t2"]);
  t.deepEqual(await ids({ nodeIds: ["n1"] }), ["t1", "t3"]);
  t.deepEqual(await ids({ desiredStates: [TaskState.SHUTDOWN] }), ["t2"]);
  t.deepEqual(await ids({ names: ["web.1.t1"] }), ["t1"]);
  t.deepEqual(await ids({ upToDate: true }), ["t1"]);
  t.is((await refusalOf(() => ids({ desiredStates: [7 as TaskState] })))?.code, Status.INVALID_ARGUMENT);
});

test("a whole id selects only its object, and other filters still apply", async (t) => {
  const { control, seed, store } = world();
  const [first = "", second = "", unknown = ""] = ["1", "2", "3"].map((digit) => digit.padStart(25, "n"));
  seed("node", workerNode(first), workerNode(second, { role: NodeRole.MANAGER }));
  let scans = 0;
  const all = store.all.bind(store);
  const counted = (table: TableName) => {
    scans += 1;
    return all(table);
  };
  Object.assign(store, { all: counted });
  const ids = async (filters: Partial<ListNodesRequest_Filters>) => {
    const request = ListNodesRequest.create({ filters: ListNodesRequest_Filters.create(filters) });
    return (await control.ListNodes(request, call())).nodes.map(({ id }) => id);
  };
  t.deepEqual(await ids({ idPrefixes: [second, second, unknown] }), [second]);
  t.deepEqual(await ids({ idPrefixes: [first, second], roles: [NodeRole.MANAGER] }), [second]);
  t.is(scans, 0);
  t.deepEqual(await ids({ idPrefixes: [first.slice(0, -1)] }), [first, second]);
  t.deepEqual(await ids({ idPrefixes: ["nnnn", second] }), [first, second]);
  t.is(scans, 2);
});

test("a node is drained by an update, and an impossible promotion or demotion is rejected", async (t) => {
  const { control, seed, store } = world();
  seed(
    "node",
    workerNode("n1"),
    workerNode("m1", { role: NodeRole.MANAGER, spec: NodeSpec.create({ desiredRole: NodeRole.MANAGER }) }),
  );
  seed("manager", Manager.create({ id: "m1", alive: true, addr: "192.0.2.1:2377" }));
  const update = (id: string, fields: Partial<NodeSpec>) => {
    const node = store.get("node", id) as Node;
    const nodeSpec = NodeSpec.patch(node.spec as NodeSpec, fields);
    const request = UpdateNodeRequest.create({ nodeId: id, nodeVersion: node.meta?.version ?? null, spec: nodeSpec });
    return control.UpdateNode(request, call());
  };
  const drained = await update("n1", { availability: NodeSpec_Availability.DRAIN });
  t.is(drained.node?.spec?.availability, NodeSpec_Availability.DRAIN);
  t.is((await refusalOf(() => update("n1", { desiredRole: NodeRole.MANAGER })))?.code, Status.FAILED_PRECONDITION);
  t.is(
    (await refusalOf(() => update("m1", { desiredRole: NodeRole.WORKER })))?.message,
    "attempting to demote the last manager of the swarm",
  );
  seed("manager", Manager.create({ id: "m2", alive: true }));
  seed("manager", Manager.create({ id: "m2", alive: false }));
  t.is(
    (await refusalOf(() => update("m1", { desiredRole: NodeRole.WORKER })))?.message,
    "can't remove member from the raft: this would result in a loss of quorum",
  );
  seed("manager", Manager.create({ id: "m2", alive: true }), Manager.create({ id: "m1", alive: false }));
  const demoted = await update("m1", { desiredRole: NodeRole.WORKER });
  t.is(demoted.node?.spec?.desiredRole, NodeRole.WORKER);
  t.is(demoted.node?.role, NodeRole.MANAGER, "it becomes a worker once the leader says so");
});

test("manager status is computed from the manager's record, and nodes are filtered by role", async (t) => {
  const { control, seed } = world();
  seed("node", workerNode("n1"), workerNode("manager1", { role: NodeRole.MANAGER }));
  seed("manager", Manager.create({ id: "manager1", alive: true, addr: "192.0.2.1:2377" }));
  const filters = ListNodesRequest_Filters.create({ roles: [NodeRole.MANAGER] });
  const { nodes } = await control.ListNodes(ListNodesRequest.create({ filters }), call());
  t.deepEqual(
    nodes.map(({ id }) => id),
    ["manager1"],
  );
  t.like(nodes[0]?.managerStatus, { addr: "192.0.2.1:2377", leader: true, reachability: 2 });
  const { node } = await control.GetNode(GetNodeRequest.create({ nodeId: "n1" }), call());
  t.is(node?.managerStatus, null);
});

test("removing a node blocks its certificate, orphans its tasks and ends its session in one transaction", async (t) => {
  const { control, env, seed, store } = world();
  await bootstrapCluster(env, pki, { advertise: "192.0.2.1:2377" });
  seed("node", workerNode("n1", { certificate: Certificate.create({}) }));
  seed("session", Session.create({ id: "n1", sessionId: "s" }));
  const task = (id: string, state: TaskState) =>
    Task.create({ id, nodeId: "n1", status: TaskStatus.create({ state }) });
  seed("task", task("t1", TaskState.RUNNING), task("t2", TaskState.COMPLETE));
  const remove = (force: boolean) => control.RemoveNode(RemoveNodeRequest.create({ nodeId: "n1", force }), call());
  t.deepEqual(await refusalOf(() => remove(false)), {
    code: Status.FAILED_PRECONDITION,
    message: "node n1 is not down and can't be removed",
  });
  const before = store.version;
  await remove(true);
  t.is(store.version, before + 1);
  t.is(store.get("node", "n1"), undefined);
  t.is(store.get("session", "n1"), undefined);
  t.is(store.get("task", "t1")?.status?.state, TaskState.ORPHANED);
  t.is(store.get("task", "t2")?.status?.state, TaskState.COMPLETE);
  const [cluster] = [...store.all("cluster")];
  t.true((cluster?.blacklistedCertificates["n1"]?.expiry?.seconds ?? 0) > env.clock.now() / 1_000);
});

test("a manager cannot be removed while it is one", async (t) => {
  const { control, seed } = world();
  seed("node", workerNode("m1"));
  seed("manager", Manager.create({ id: "m1", alive: false }));
  const refusal = await refusalOf(() =>
    control.RemoveNode(RemoveNodeRequest.create({ nodeId: "m1", force: true }), call()),
  );
  t.regex(refusal?.message ?? "", /must be demoted to worker before removal/);
});

test("a manager that could not start after it joined removes itself, unless no other is alive", async (t) => {
  const { control, seed, store } = world();
  seed("node", workerNode("m1"));
  seed("manager", Manager.create({ id: "m1", alive: true }), Manager.create({ id: "m2", alive: false }));
  const remove = (nodeId: string) =>
    control.RemoveNode(
      RemoveNodeRequest.create({ nodeId: "m1", force: true }),
      call({ local: false, identity: { nodeId, role: "swarm-manager", organization: "cluster" } }),
    );
  for (const [nodeId, alive] of [
    ["m1", false],
    ["m2", true],
  ] as const) {
    seed("manager", Manager.create({ id: "m2", alive }));
    t.regex((await refusalOf(() => remove(nodeId)))?.message ?? "", /must be demoted to worker before removal/, nodeId);
  }
  await remove("m1");
  t.is(store.get("node", "m1"), undefined);
  t.is(store.get("manager", "m1"), undefined);
});

test("a cluster is shown without keys, and a rotation replaces only the requested token's secret", async (t) => {
  const { control, env, store } = world();
  await bootstrapCluster(env, pki, { advertise: "192.0.2.1:2377" });
  const [stored] = [...store.all("cluster")];
  const clusterId = stored?.id ?? "";
  const { cluster } = await control.GetCluster(GetClusterRequest.create({ clusterId }), call());
  t.is(cluster?.rootCa?.caKey.length, 0);
  t.deepEqual(cluster?.networkBootstrapKeys, []);
  t.true((stored?.rootCa?.caKey.length ?? 0) > 0);
  const before = cluster?.rootCa?.joinTokens;
  const request = UpdateClusterRequest.create({
    clusterId,
    clusterVersion: cluster?.meta?.version ?? null,
    spec: cluster?.spec ?? null,
    rotation: KeyRotation.create({ workerJoinToken: true }),
  });
  const after = (await control.UpdateCluster(request, call())).cluster?.rootCa?.joinTokens;
  t.is(after?.manager, before?.manager);
  t.not(after?.worker, before?.worker);
  t.is(after?.worker.slice(0, -25), before?.worker.slice(0, -25));
  t.true(
    ([...store.all("cluster")][0]?.rootCa?.caKey.length ?? 0) > 0,
    "the stored key survives an update of a redacted spec",
  );
});

test("secret data goes in and never comes out; only labels change; secrets in use stay", async (t) => {
  const { control, store } = world();
  const secretSpec = SecretSpec.create({ annotations: Annotations.create({ name: "pw" }), data: Uint8Array.of(1, 2) });
  const { secret } = await control.CreateSecret(CreateSecretRequest.create({ spec: secretSpec }), call());
  const secretId = secret?.id ?? "";
  t.is(secret?.spec?.data.length, 0);
  t.is((await control.GetSecret(GetSecretRequest.create({ secretId }), call())).secret?.spec?.data.length, 0);
  t.is((await control.ListSecrets(ListSecretsRequest.create({}), call())).secrets[0]?.spec?.data.length, 0);
  t.is(store.get("secret", secretId)?.spec?.data.length, 2);
  t.is(
    (await refusalOf(() => control.CreateSecret(CreateSecretRequest.create({ spec: secretSpec }), call())))?.message,
    "secret pw already exists",
  );
  const reference = SecretReference.create({ secretId, secretName: "pw", file: FileTarget.create({ name: "pw" }) });
  const task = TaskSpec.create({ container: ContainerSpec.create({ image: "bb:1", secrets: [reference] }) });
  const service = await createdService(control, ServiceSpec.patch(spec("web"), { task }));
  const remove = () => control.RemoveSecret(RemoveSecretRequest.create({ secretId }), call());
  t.is((await refusalOf(remove))?.message, "secret 'pw' is in use by the following service: web");
  await control.RemoveService(RemoveServiceRequest.create({ serviceId: service.id }), call());
  await remove();
  t.deepEqual(await refusalOf(remove), { code: Status.NOT_FOUND, message: `could not find secret ${secretId}` });
  t.is(
    (
      await refusalOf(() =>
        control.CreateService(CreateServiceRequest.create({ spec: ServiceSpec.patch(spec("web"), { task }) }), call()),
      )
    )?.message,
    "secret not found: pw",
  );
});

test("only labels of a config can be updated, and its data stays", async (t) => {
  const { control, store } = world();
  const configSpec = ConfigSpec.create({ annotations: Annotations.create({ name: "c" }), data: Uint8Array.of(7) });
  const { config } = await control.CreateConfig(CreateConfigRequest.create({ spec: configSpec }), call());
  const update = (wanted: ConfigSpec) =>
    control.UpdateConfig(
      UpdateConfigRequest.create({
        configId: config?.id ?? "",
        configVersion: config?.meta?.version ?? null,
        spec: wanted,
      }),
      call(),
    );
  const other = ConfigSpec.patch(configSpec, { data: Uint8Array.of(8) });
  t.is((await refusalOf(() => update(other)))?.message, "only updates to Labels are allowed");
  const labelled = ConfigSpec.create({ annotations: Annotations.create({ name: "c", labels: { a: "b" } }) });
  const { config: after } = await update(labelled);
  t.deepEqual(after?.spec?.annotations?.labels, { a: "b" });
  t.deepEqual([...(store.get("config", config?.id ?? "")?.spec?.data ?? [])], [7]);
});

test("resources need a registered kind, and an extension stays while it has some", async (t) => {
  const { control } = world();
  const resource = CreateResourceRequest.create({ annotations: Annotations.create({ name: "r" }), kind: "policy" });
  t.is((await refusalOf(() => control.CreateResource(resource, call())))?.message, "Kind policy is not registered");
  const { extension } = await control.CreateExtension(
    CreateExtensionRequest.create({ annotations: Annotations.create({ name: "policy" }) }),
    call(),
  );
  await control.CreateResource(resource, call());
  const removal = RemoveExtensionRequest.create({ extensionId: extension?.id ?? "" });
  t.deepEqual(await refusalOf(() => control.RemoveExtension(removal, call())), {
    code: Status.INVALID_ARGUMENT,
    message: "extension 'policy' is in use by the following resource: r",
  });
});

test("P10: if a resource is created while its extension is removed, one of the two is rejected", async (t) => {
  const { control, store } = world();
  const { extension } = await control.CreateExtension(
    CreateExtensionRequest.create({ annotations: Annotations.create({ name: "policy" }) }),
    call(),
  );
  const removal = RemoveExtensionRequest.create({ extensionId: extension?.id ?? "" });
  const resource = (name: string) =>
    CreateResourceRequest.create({ annotations: Annotations.create({ name }), kind: "policy" });
  // Both read before either has written.
  const [made, removed] = await Promise.all([
    refusalOf(() => control.CreateResource(resource("r"), call())),
    refusalOf(() => control.RemoveExtension(removal, call())),
  ]);
  t.is(made, null);
  t.is(removed?.message, "extension 'policy' is in use by the following resource: r");
  const [resourceR] = [...store.all("resource")];
  await control.RemoveResource(RemoveResourceRequest.create({ resourceId: resourceR?.id ?? "" }), call());
  const [gone, late] = await Promise.all([
    refusalOf(() => control.RemoveExtension(removal, call())),
    refusalOf(() => control.CreateResource(resource("s"), call())),
  ]);
  t.is(gone, null);
  t.deepEqual(late, { code: Status.INVALID_ARGUMENT, message: "Kind policy is not registered" });
  t.is(store.count("resource"), 0);
});

test("a task holds its network until it has ended, unless it is to stop on a node that is down", async (t) => {
  const { control, seed, store } = world();
  const named = NetworkSpec.create({ annotations: Annotations.create({ name: "back" }) });
  const { network } = await control.CreateNetwork(CreateNetworkRequest.create({ spec: named }), call());
  const remove = () => control.RemoveNetwork(RemoveNetworkRequest.create({ networkId: network?.id ?? "" }), call());
  const { DOWN, READY } = NodeStatus_State;
  for (const [desiredState, state] of [
    [TaskState.RUNNING, DOWN],
    [TaskState.SHUTDOWN, READY],
  ] as const) {
    seed("node", workerNode("n1", { status: NodeStatus.create({ state }) }));
    const status = TaskStatus.create({ state: TaskState.RUNNING });
    const networks = [NetworkAttachment.create({ network })];
    seed("task", Task.create({ id: "t1", nodeId: "n1", desiredState, status, networks }));
    t.is((await refusalOf(remove))?.message, `network ${network?.id} is in use by task t1`);
  }
  seed("node", workerNode("n1", { status: NodeStatus.create({ state: DOWN }) }));
  await remove();
  t.is(store.get("network", network?.id ?? ""), undefined);
});
