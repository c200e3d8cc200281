import test from "ava";
import { checkServiceSpec, checkPortConflicts } from "../../machines/validation/service.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import { checkConstraint } from "../../machines/validation/placement.ts";
import { isImageReference } from "../../machines/image-reference.ts";
import { checkTemplate } from "../../machines/validation/template.ts";
import { parseCidr, parseAddress, containsAddress } from "../../machines/ip-address.ts";
import {
  Annotations,
  Any,
  ContainerSpec,
  Duration,
  EndpointSpec,
  ExecSpec,
  FileTarget,
  GenericRuntimeSpec,
  GlobalJob,
  HealthConfig,
  Mount,
  NetworkAttachmentSpec,
  Placement,
  PlacementPreference,
  PortConfig,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  ReplicatedService,
  Resources,
  ResourceRequirements,
  RestartPolicy,
  SecretReference,
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
    "a preference that no scheduler knows",
    withTask({
      placement: Placement.create({
        preferences: [PlacementPreference.create({ spread: SpreadOver.create({ spreadDescriptor: "node.id" }) })],
      }),
    }),
    "placement preference 'spread=node.id' is invalid: expected node.labels.<name> or engine.labels.<name>",
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
  ["a process without command", exec({ args: ["x"] }), 'Generic runtime: kind "exec" needs a command'],
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

for (const [what, spec, message] of refusals) {
  test(`a service with ${what} is refused`, (t) => t.is(checkServiceSpec(spec)?.message, message));
}

test("a plain container service, a process and one port over two protocols pass", (t) => {
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

test("a long wrong name is refused at once", (t) => {
  t.is(checkServiceSpec(named(`${"a-".repeat(20_000)}!`))?.kind, "invalid-argument");
  t.is(checkServiceSpec(withContainer({ image: `${"a.".repeat(5_000)}!` }))?.kind, "invalid-argument");
});

test("ingress ports clash with any other service's, host ports do not clash with each other", (t) => {
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

test("constraints are parsed as SwarmKit's scheduler does", (t) => {
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

test("templates that no task could expand are refused", (t) => {
  t.is(checkTemplate("x-{{.Task.Slot}}-{{ .Node.Hostname }}"), null);
  t.is(checkTemplate('{{index .Service.Labels "a.b"}}'), null);
  t.regex(checkTemplate("{{.Task.Slot")?.message ?? "", /unclosed/);
  t.regex(checkTemplate("{{.Task.Color}}")?.message ?? "", /not known/);
});

test("addresses of both families are read, and nothing else", (t) => {
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

test("two specs are the same whatever the order of their labels, and whether a default is written out or not", (t) => {
  const labelled = (labels: Record<string, string>): ServiceSpec =>
    ServiceSpec.patch(good, { annotations: Annotations.create({ name: "web", labels }) });
  t.true(isSameMessage(labelled({ a: "1", b: "2" }), labelled({ b: "2", a: "1" })));
  t.false(isSameMessage(labelled({ a: "1" }), labelled({ a: "2" })));
  t.false(isSameMessage(labelled({ a: "1" }), labelled({ b: "1" })));
  const task = TaskSpec.create({ container });
  t.true(isSameMessage(task, TaskSpec.decode(TaskSpec.encode(TaskSpec.patch(task, { forceUpdate: 0 })))));
  t.false(isSameMessage(task, TaskSpec.patch(task, { forceUpdate: 1 })));
});
