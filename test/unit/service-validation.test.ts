import test from "ava";
import { checkServiceSpec, checkPortConflicts } from "../../machines/validation/service.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import { checkConstraint } from "../../machines/validation/placement.ts";
import { isImageReference } from "../../machines/image-reference.ts";
import { checkReferencesExist } from "../../machines/validation/reference.ts";
import { checkNotReferenced } from "../../machines/validation/secret.ts";
import { checkRuntime } from "../../machines/validation/task-spec.ts";
import { checkTaskSpec } from "../../machines/validation/task-spec.ts";
import { checkTemplates } from "../../machines/validation/template.ts";
import { parseCidr, parseAddress, containsAddress } from "../../lib/ip-address.ts";
import {
  Annotations,
  Any,
  ConfigReference,
  ContainerSpec_DNSConfig,
  ContainerSpec,
  DiscreteGenericResource,
  Duration,
  EndpointSpec,
  ExecSpec,
  FileTarget,
  GenericResource,
  GenericRuntimeSpec,
  GlobalJob,
  HealthConfig,
  Mount,
  Mount_Type,
  NamedGenericResource,
  NetworkAttachmentSpec,
  Placement,
  PlacementPreference,
  PortConfig,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  Privileges,
  Privileges_CredentialSpec,
  ReplicatedJob,
  ReplicatedService,
  Resources,
  ResourceReference,
  ResourceRequirements,
  ResourceType,
  RestartPolicy,
  Secret,
  SecretReference,
  SecretSpec,
  Service,
  ServiceSpec,
  SpreadOver,
  TaskSpec,
  UpdateConfig,
} from "../../proto/gen/messages.ts";

const container = ContainerSpec.create({ image: "bb:1" });
const good = ServiceSpec.create({
  annotations: Annotations.create({ name: "web" }),
  task: TaskSpec.create({ container }),
  replicated: ReplicatedService.create({ replicas: 1 }),
});

function named(name: string): ServiceSpec {
  return ServiceSpec.patch(good, { annotations: Annotations.create({ name }) });
}
function withTask(fields: Partial<TaskSpec>): ServiceSpec {
  return ServiceSpec.patch(good, { task: TaskSpec.create({ container, ...fields }) });
}
function withContainer(fields: Partial<ContainerSpec>): ServiceSpec {
  return withTask({ container: ContainerSpec.create({ image: "bb:1", ...fields }) });
}
function generic(kind: string, payload: Any | null): ServiceSpec {
  return ServiceSpec.patch(good, {
    task: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind, payload }) }),
  });
}
function exec(fields: Partial<ExecSpec>): ServiceSpec {
  return generic(
    "exec",
    Any.create({ type_url: "muster.v1.ExecSpec", value: ExecSpec.encode(ExecSpec.create(fields)) }),
  );
}
const ports = (...list: Partial<PortConfig>[]) =>
  EndpointSpec.create({ ports: list.map((port) => PortConfig.create(port)) });
const limits = (fields: Partial<Resources>) =>
  withTask({ resources: ResourceRequirements.create({ limits: Resources.create(fields) }) });
const secret = (fields: Partial<SecretReference>) => SecretReference.create(fields);
const file = (name: string) => FileTarget.create({ name });

/** As it arrives: counts have no sign on the wire. */
const sent = (fields: Partial<ServiceSpec>) => ServiceSpec.decode(ServiceSpec.encode(ServiceSpec.patch(good, fields)));

const refusals: readonly (readonly [string, ServiceSpec | null, string])[] = [
  ["no spec", null, "invalid argument"],
  ["no name", named(""), "meta: name must be provided"],
  ["a name with a dot", named("a.b"), "name must be valid as a DNS name component"],
  ["a name of 64 characters", named("a".repeat(64)), "name must be 63 characters or fewer"],
  ["half a thousandth of a core", limits({ nanoCpus: 500_000 }), "invalid cpu value 0.0005: Must be at least 0.001"],
  ["a nanocore", limits({ nanoCpus: 1 }), "invalid cpu value 1e-09: Must be at least 0.001"],
  ["one MiB of memory", limits({ memoryBytes: 1_048_576 }), "invalid memory value 1048576: Must be at least 4MiB"],
  [
    "a negative restart delay",
    withTask({ restart: RestartPolicy.create({ delay: Duration.create({ seconds: -1 }) }) }),
    "TaskSpec: restart-delay cannot be negative",
  ],
  [
    "a constraint without operator",
    withTask({ placement: Placement.create({ constraints: ["node.role=manager"] }) }),
    "constraint expected one operator from ==, !=",
  ],
  [
    "an unsupported preference",
    withTask({
      placement: Placement.create({
        preferences: [PlacementPreference.create({ spread: SpreadOver.create({ spreadDescriptor: "node.id" }) })],
      }),
    }),
    "placement preference 'spread=node.id' is invalid: expected node.labels.<name>, engine.labels.<name> or node.site",
  ],
  ["a secret without id", withContainer({ secrets: [secret({ secretName: "a" })] }), "malformed secret reference"],
  [
    "two secrets in one file",
    withContainer({
      secrets: [
        secret({ secretId: "1", secretName: "a", file: file("f") }),
        secret({ secretId: "2", secretName: "b", file: file("f") }),
      ],
    }),
    "secret references 'a' and 'b' have a conflicting target: 'f'",
  ],
  ["no runtime", ServiceSpec.patch(good, { task: TaskSpec.create({}) }), "TaskSpec: missing runtime"],
  [
    "an attachment",
    ServiceSpec.patch(good, { task: TaskSpec.create({ attachment: NetworkAttachmentSpec.create({}) }) }),
    "RuntimeSpec: unimplemented runtime in service spec",
  ],
  ["a short kind", generic("ab", null), 'Generic runtime: Invalid name "ab"'],
  ["a reserved kind", generic("container", null), 'Generic runtime: "container" is a reserved name'],
  ["no payload", generic("qemu", null), "Generic runtime is missing payload"],
  ["an empty payload", generic("qemu", Any.create({ type_url: "x" })), "Generic runtime has an empty payload"],
  [
    "an invalid name server",
    exec({ command: "true", dns: ContainerSpec_DNSConfig.create({ nameservers: ["one"] }) }),
    'Generic runtime: invalid name server "one": expected an IP address',
  ],
  [
    "a search domain of two words",
    exec({ command: "true", dns: ContainerSpec_DNSConfig.create({ search: ["a b"] }) }),
    'Generic runtime: invalid DNS search domain or option "a b": expected one word without "#" or ";"',
  ],
  ["a process without command", exec({ args: ["x"] }), 'Generic runtime: kind "exec" requires a command'],
  ["no image", withContainer({ image: "" }), "ContainerSpec: image reference must be provided"],
  [
    "an image in capitals",
    withContainer({ image: "BusyBox" }),
    'ContainerSpec: "BusyBox" is not a valid repository/tag',
  ],
  [
    "a mount point twice",
    withContainer({ mounts: [Mount.create({ target: "/a" }), Mount.create({ target: "/a" })] }),
    "ContainerSpec: duplicate mount point: /a",
  ],
  [
    "a health interval of a microsecond",
    withContainer({ healthcheck: HealthConfig.create({ interval: Duration.create({ nanos: 1_000 }) }) }),
    "ContainerSpec: Interval in HealthConfig cannot be less than 1ms",
  ],
  ["no mode", ServiceSpec.patch(good, { replicated: null }), "Unrecognized service mode"],
  [
    "replicas below zero",
    ServiceSpec.decode(
      ServiceSpec.encode(ServiceSpec.patch(good, { replicated: ReplicatedService.create({ replicas: -1 }) })),
    ),
    "Number of replicas must be non-negative",
  ],
  [
    "parallelism below zero",
    sent({ update: UpdateConfig.create({ parallelism: -1 }) }),
    "TaskSpec: update-parallelism cannot be negative",
  ],
  [
    "that of a rollback",
    sent({ rollback: UpdateConfig.create({ parallelism: -1 }) }),
    "TaskSpec: rollback-parallelism cannot be negative",
  ],
  [
    "attempts below zero",
    sent(withTask({ restart: RestartPolicy.create({ maxAttempts: -1 }) })),
    "TaskSpec: restart-max-attempts cannot be negative",
  ],
  [
    "replicas of a node below zero",
    sent(withTask({ placement: Placement.create({ maxReplicas: -1 }) })),
    "TaskSpec: replicas-max-per-node cannot be negative",
  ],
  [
    "a job with an update config",
    ServiceSpec.patch(good, { replicated: null, globalJob: GlobalJob.create({}), update: UpdateConfig.create({}) }),
    "Jobs may not have an update config",
  ],
  [
    "an update that may fail by more than all",
    ServiceSpec.patch(good, { update: UpdateConfig.create({ maxFailureRatio: 1.5 }) }),
    "TaskSpec: update-maxfailureratio cannot be less than 0 or bigger than 1",
  ],
  [
    "a rollback with negative delay",
    ServiceSpec.patch(good, { rollback: UpdateConfig.create({ delay: Duration.create({ seconds: -1 }) }) }),
    "TaskSpec: rollback-delay cannot be negative",
  ],
  [
    "one port twice",
    ServiceSpec.patch(good, { endpoint: ports({ publishedPort: 80 }, { publishedPort: 80 }) }),
    "EndpointSpec: duplicate published ports provided",
  ],
  [
    "an ingress port with dnsrr",
    ServiceSpec.patch(good, { endpoint: EndpointSpec.patch(ports({ publishedPort: 80 }), { mode: 1 }) }),
    "EndpointSpec: port published with ingress mode can't be used with dnsrr mode",
  ],
];

const config = (fields: Partial<ConfigReference>) => ConfigReference.create(fields);
const negative = Duration.create({ seconds: -1 });
/** The rest of SwarmKit's texts (reference §1.5), and where it has none, ours. */
const moreRefusals: typeof refusals = [
  ["negative memory", limits({ memoryBytes: -1 }), "invalid memory value -1: Must be at least 4MiB"],
  [
    "a reservation of half a MiB",
    withTask({
      resources: ResourceRequirements.create({ reservations: Resources.create({ memoryBytes: 524_288 }) }),
    }),
    "invalid memory value 524288: Must be at least 4MiB",
  ],
  [
    "a generic resource by name",
    limits({
      generic: [
        GenericResource.create({ namedResourceSpec: NamedGenericResource.create({ kind: "gpu", value: "1" }) }),
      ],
    }),
    "a service can only request generic resources by count, not by name",
  ],
  [
    "none of a generic resource",
    limits({
      generic: [GenericResource.create({ discreteResourceSpec: DiscreteGenericResource.create({ kind: "gpu" }) })],
    }),
    "invalid generic resource 'gpu=0'",
  ],
  [
    "a negative restart window",
    withTask({ restart: RestartPolicy.create({ window: negative }) }),
    "TaskSpec: restart-window cannot be negative",
  ],
  [
    "a secret without target",
    withContainer({ secrets: [secret({ secretId: "1", secretName: "a" })] }),
    "malformed secret reference, no target provided",
  ],
  [
    "a secret without file name",
    withContainer({ secrets: [secret({ secretId: "1", secretName: "a", file: file("") })] }),
    "malformed file secret reference, invalid target file name provided",
  ],
  ["a config without name", withContainer({ configs: [config({ configId: "1" })] }), "malformed config reference"],
  [
    "a config without target",
    withContainer({ configs: [config({ configId: "1", configName: "a" })] }),
    "malformed config reference, no target provided",
  ],
  [
    "a config without file name",
    withContainer({ configs: [config({ configId: "1", configName: "a", file: file("") })] }),
    "malformed file config reference, invalid target file name provided",
  ],
  [
    "two configs in one file",
    withContainer({
      configs: [
        config({ configId: "1", configName: "a", file: file("f") }),
        config({ configId: "2", configName: "b", file: file("f") }),
      ],
    }),
    "config references 'a' and 'b' have a conflicting target: 'f'",
  ],
  [
    "a credential spec whose config is not listed",
    withContainer({
      privileges: Privileges.create({ credentialSpec: Privileges_CredentialSpec.create({ config: "c1" }) }),
    }),
    "CredentialSpec references config 'c1', but that config isn't in config references with RuntimeTarget",
  ],
  ["another reserved kind", generic("attachment", null), 'Generic runtime: "attachment" is a reserved name'],
  [
    "a payload without type",
    generic("qemu", Any.create({ value: new Uint8Array([1]) })),
    "Generic runtime is missing payload type",
  ],
  [
    "a process whose environment has no name",
    exec({ command: "x", env: ["=y"] }),
    'Generic runtime: environment variable "=y" is not NAME=value',
  ],
  ...(["timeout", "startPeriod", "startInterval"] as const).map(
    (field) =>
      [
        `a health ${field} of a microsecond`,
        withContainer({ healthcheck: HealthConfig.create({ [field]: Duration.create({ nanos: 1_000 }) }) }),
        `ContainerSpec: ${field.charAt(0).toUpperCase()}${field.slice(1)} in HealthConfig cannot be less than 1ms`,
      ] as const,
  ),
  [
    "negative retries",
    withContainer({ healthcheck: HealthConfig.create({ retries: -1 }) }),
    "ContainerSpec: Retries in HealthConfig cannot be negative",
  ],
  [
    "a template in its environment that cannot be expanded",
    withContainer({ env: ["A={{.Service.Colour}}"] }),
    'expanding env failed: expanding env "A={{.Service.Colour}}": template: expansion:1:10: executing "expansion" at ' +
      "<.Service.Colour>: can't evaluate field Colour in type struct { ID string; Name string; Labels map[string]string }",
  ],
  [
    "a job with negative completions",
    ServiceSpec.patch(good, { replicated: null, replicatedJob: ReplicatedJob.create({ totalCompletions: -1 }) }),
    "Total completed jobs must not be negative",
  ],
  [
    "a job with negative concurrency",
    ServiceSpec.patch(good, { replicated: null, replicatedJob: ReplicatedJob.create({ maxConcurrent: -1 }) }),
    "Maximum concurrent jobs must not be negative",
  ],
  ...(["update", "rollback"] as const).flatMap((field) => [
    [
      `a negative ${field} delay`,
      ServiceSpec.patch(good, { [field]: UpdateConfig.create({ delay: negative }) }),
      `TaskSpec: ${field}-delay cannot be negative`,
    ] as const,
    [
      `a negative ${field} monitor`,
      ServiceSpec.patch(good, { [field]: UpdateConfig.create({ monitor: negative }) }),
      `TaskSpec: ${field}-monitor cannot be negative`,
    ] as const,
    [
      `a ${field} with a negative failure ratio`,
      ServiceSpec.patch(good, { [field]: UpdateConfig.create({ maxFailureRatio: -0.5 }) }),
      `TaskSpec: ${field}-maxfailureratio cannot be less than 0 or bigger than 1`,
    ] as const,
  ]),
  [
    "a port too large",
    ServiceSpec.patch(good, { endpoint: ports({ targetPort: 65_536 }) }),
    "EndpointSpec: invalid port 65536: expected 1 to 65535",
  ],
];

for (const [what, spec, message] of [...refusals, ...moreRefusals]) {
  test(`a service with ${what} is rejected`, (t) => {
    const kind = message.startsWith("RuntimeSpec: unimplemented") ? "unimplemented" : "invalid-argument";
    t.deepEqual(checkServiceSpec(spec), { kind, message });
  });
}

test("a spec with every error reports them in SwarmKit's order, as one after the other is fixed", (t) => {
  const reserved = (nanoCpus: number) => ResourceRequirements.create({ limits: Resources.create({ nanoCpus }) });
  const task = TaskSpec.create({
    resources: reserved(1),
    restart: RestartPolicy.create({ delay: negative }),
    placement: Placement.create({ constraints: ["x"] }),
    container: ContainerSpec.create({ secrets: [secret({})], configs: [config({})] }),
  });
  let spec = ServiceSpec.create({
    annotations: Annotations.create({ name: "" }),
    task,
    update: UpdateConfig.create({ delay: negative }),
    rollback: UpdateConfig.create({ monitor: negative }),
    endpoint: ports({ publishedPort: 80 }, { publishedPort: 80 }),
  });
  const mendTask = (fields: Partial<TaskSpec>) => () =>
    ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task ?? task, fields) });
  const mendContainer = (fields: Partial<ContainerSpec>) => () =>
    mendTask({ container: ContainerSpec.patch(spec.task?.container ?? container, fields) })();
  const steps: readonly (readonly [string, () => ServiceSpec])[] = [
    ["meta: name must be provided", () => ServiceSpec.patch(spec, { annotations: good.annotations })],
    ["invalid cpu value 1e-09: Must be at least 0.001", mendTask({ resources: null })],
    ["TaskSpec: restart-delay cannot be negative", mendTask({ restart: null })],
    ["constraint expected one operator from ==, !=", mendTask({ placement: null })],
    ["malformed secret reference", mendContainer({ secrets: [] })],
    ["malformed config reference", mendContainer({ configs: [] })],
    ["ContainerSpec: image reference must be provided", mendContainer({ image: "bb" })],
    ["Unrecognized service mode", () => ServiceSpec.patch(spec, { replicated: good.replicated })],
    ["TaskSpec: update-delay cannot be negative", () => ServiceSpec.patch(spec, { update: null })],
    ["TaskSpec: rollback-monitor cannot be negative", () => ServiceSpec.patch(spec, { rollback: null })],
    ["EndpointSpec: duplicate published ports provided", () => ServiceSpec.patch(spec, { endpoint: null })],
  ];
  for (const [message, mended] of steps) {
    t.is(checkServiceSpec(spec)?.message, message);
    spec = mended();
  }
  t.is(checkServiceSpec(spec), null);
});

test("a plain container service, a process and one port over two protocols are valid", (t) => {
  t.is(checkServiceSpec(good), null);
  t.is(checkServiceSpec(exec({ command: "/bin/true", env: ["A=b"] })), null);
  const both = ports(
    { publishedPort: 53, protocol: PortConfig_Protocol.TCP },
    { publishedPort: 53, protocol: PortConfig_Protocol.UDP },
  );
  t.is(checkServiceSpec(ServiceSpec.patch(good, { endpoint: both })), null);
});

test("the first failure in SwarmKit's order is the answer", (t) => {
  const bad = ServiceSpec.patch(limits({ nanoCpus: 1 }), {
    annotations: Annotations.create({ name: "" }),
    replicated: null,
  });
  t.is(checkServiceSpec(bad)?.message, "meta: name must be provided");
});

test("a long invalid name is rejected at once", (t) => {
  t.is(checkServiceSpec(named(`${"a-".repeat(20_000)}!`))?.kind, "invalid-argument");
  t.is(checkServiceSpec(withContainer({ image: `${"a.".repeat(5_000)}!` }))?.kind, "invalid-argument");
});

test("ingress ports conflict with any other service's, and host ports do not conflict with each other", (t) => {
  const service = (publishMode: PortConfig_PublishMode): Service =>
    Service.create({
      id: "other",
      spec: ServiceSpec.patch(named("theirs"), { endpoint: ports({ publishedPort: 80, publishMode }) }),
    });
  const ours = (publishMode: PortConfig_PublishMode): ServiceSpec =>
    ServiceSpec.patch(good, { endpoint: ports({ publishedPort: 80, publishMode }) });
  const { INGRESS, HOST } = PortConfig_PublishMode;
  t.is(
    checkPortConflicts(ours(HOST), "", [service(INGRESS)])?.message,
    "port '80' is already in use by service 'theirs' (other) as an ingress port",
  );
  t.is(
    checkPortConflicts(ours(INGRESS), "", [service(HOST)])?.message,
    "port '80' is already in use by service 'theirs' (other) as a host-published port",
  );
  t.is(checkPortConflicts(ours(HOST), "", [service(HOST)]), null);
  t.is(checkPortConflicts(ours(INGRESS), "other", [service(INGRESS)]), null);
});

test("constraints are parsed as by SwarmKit's scheduler", (t) => {
  t.is(checkConstraint("node.labels.zone == eu-1"), null);
  t.is(checkConstraint("node.role!=manager"), null);
  t.is(checkConstraint("1node==x")?.message, "key '1node' is invalid");
  t.is(checkConstraint("node.id==")?.message, "value '' is invalid");
});

test("image references follow the distribution grammar", (t) => {
  for (const image of [
    "bb",
    "bb:1",
    "localhost:5000/a/b:v1",
    "example.org/a__b/c@sha256:" + "0".repeat(64),
    "[::1]:5000/a",
  ]) {
    t.true(isImageReference(image), image);
  }
  for (const image of ["", "A", "a:", "a@sha256:12", "-a", "a//b", "0".repeat(64), "a".repeat(256)]) {
    t.false(isImageReference(image), image);
  }
});

test("a process may request secrets and configs that its nodes receive, and each must exist when the service is written", (t) => {
  const task = (files: Partial<ExecSpec>, sent: readonly (readonly [ResourceType, string])[]) =>
    TaskSpec.create({
      generic: GenericRuntimeSpec.create({
        kind: "exec",
        payload: Any.create({
          type_url: "muster.v1.ExecSpec",
          value: ExecSpec.encode(ExecSpec.create({ command: "true", ...files })),
        }),
      }),
      resourceReferences: sent.map(([resourceType, resourceId]) =>
        ResourceReference.create({ resourceType, resourceId }),
      ),
    });
  const files = {
    secrets: [secret({ secretId: "1", secretName: "a", file: file("f") })],
    configs: [ConfigReference.create({ configId: "2", configName: "b", file: file("f") })],
  };
  const [aSecret, aConfig] = [[ResourceType.SECRET, "1"] as const, [ResourceType.CONFIG, "2"] as const];
  t.is(checkRuntime(task(files, [aSecret, aConfig])), null);
  t.is(
    checkRuntime(task(files, [aConfig, [ResourceType.CONFIG, "1"]]))?.message,
    "'a' is missing from the task's resource references; add it there",
  );
  const twice = { secrets: [...files.secrets, secret({ secretId: "1", secretName: "a", file: file("f") })] };
  t.is(checkRuntime(task(twice, [aSecret]))?.message, "secret references 'a' and 'a' have a conflicting target: 'f'");
  t.regex(checkRuntime(task({ env: ["A={{.Nothing}}"] }, []))?.message ?? "", /expanding env "A=/);
  const spec = ServiceSpec.create({ task: task(files, [aSecret, aConfig]) });
  const names = (id: string) =>
    new Map([
      ["1", "a"],
      ["2", "b"],
    ]).get(id);
  t.is(checkReferencesExist(spec, names, names), null);
  t.is(checkReferencesExist(spec, names, () => undefined)?.message, "config not found: b");
  t.is(checkReferencesExist(spec, () => "other", names)?.message, "secret not found: a");
  const bare = ServiceSpec.create({ task: task({}, [aSecret]) });
  t.is(checkReferencesExist(bare, () => undefined, names)?.message, "secret not found: 1");
  const user = Service.create({ spec: ServiceSpec.patch(spec, { annotations: Annotations.create({ name: "web" }) }) });
  const used = Secret.create({ id: "1", spec: SecretSpec.create({ annotations: Annotations.create({ name: "a" }) }) });
  t.is(
    checkNotReferenced("secret", used, [user], () => [])?.message,
    "secret 'a' is in use by the following service: web",
  );
  t.is(
    checkNotReferenced("secret", Secret.patch(used, { id: "2" }), [user], () => []),
    null,
  );
});

test("templates that no task could expand are rejected", (t) => {
  const tried = (text: string) => checkTemplates([{ text, failure: () => "expanding hostname failed" }]);
  t.is(tried("x-{{.Task.Slot}}-{{ .Node.Hostname }}"), null);
  t.is(tried('{{index .Service.Labels "a.b"}}'), null);
  t.is(tried("{{.Task.Slot")?.message, "expanding hostname failed: template: expansion:1: unclosed action");
  t.is(
    tried("{{.Task.Color}}")?.message,
    'expanding hostname failed: template: expansion:1:7: executing "expansion" at <.Task.Color>: ' +
      "can't evaluate field Color in type struct { ID string; Name string; Slot string }",
  );
  t.is(tried('{{if eq .Task.Slot "1"}}{{.Service.Labels.anything}}{{else}}{{join "-" "a" "b"}}{{end}}'), null);
  t.regex(tried('{{secret "s"}}')?.message ?? "", /function "secret" not defined/);
});

test("only addresses of both families are parsed", (t) => {
  t.is(parseCidr("10.1.2.3/8")?.value, parseAddress("10.0.0.0")?.value);
  t.is(parseAddress("::ffff:1.2.3.4")?.value, 0xffff01020304n);
  t.is(parseAddress("1::2")?.value, (1n << 112n) + 2n);
  for (const text of ["1.2.3", "1.2.3.256", "01.2.3.4", "::1::", "1:2:3", "g::", "1:2:3:4:5:6:7:8:9"])
    t.is(parseAddress(text), null, text);
  for (const text of ["10.0.0.0", "10.0.0.0/33", "::/129", "a/8"]) t.is(parseCidr(text), null, text);
  const prefix = parseCidr("fd00::/8");
  const inside = parseAddress("fd12::1");
  t.true(prefix !== null && inside !== null && containsAddress(prefix, inside));
});

test("two specs are equal whatever the order of their labels, and whether a default is explicit or not", (t) => {
  const labelled = (labels: Record<string, string>): ServiceSpec =>
    ServiceSpec.patch(good, { annotations: Annotations.create({ name: "web", labels }) });
  t.true(isSameMessage(labelled({ a: "1", b: "2" }), labelled({ b: "2", a: "1" })));
  t.false(isSameMessage(labelled({ a: "1" }), labelled({ a: "2" })));
  t.false(isSameMessage(labelled({ a: "1" }), labelled({ b: "1" })));
  const task = TaskSpec.create({ container });
  t.true(isSameMessage(task, TaskSpec.decode(TaskSpec.encode(TaskSpec.patch(task, { forceUpdate: 0 })))));
  t.false(isSameMessage(task, TaskSpec.patch(task, { forceUpdate: 1 })));
});

test("a process mounts a cluster volume only inside its directory", (t) => {
  const refusal = (target: string) => {
    const mount = Mount.create({ type: Mount_Type.CLUSTER, source: "vol", target });
    const payload = Any.create({
      type_url: "muster.v1.ExecSpec",
      value: ExecSpec.encode(ExecSpec.create({ command: "true", mounts: [mount] })),
    });
    return checkTaskSpec(TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "exec", payload }) }));
  };
  t.is(refusal("/data/a"), null);
  for (const target of ["a/../b", "..", "/a/..", "a/./b", "a//b", "/"])
    t.regex(refusal(target)?.message ?? "accepted", /invalid mount target/, target);
});
