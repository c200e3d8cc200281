// From tasks of container services to requests to the docker driver, and from there to the engine.
import test from "ava";
import { dnsOf } from "../../actors/driver/task-config.ts";
import { containerOf } from "../../drivers/docker/container.ts";
import { taskFields, type DockerConfig, type DriverConfig } from "../../drivers/docker/fields.ts";
import { objectSpec, readConfig } from "../../edges/plugin/server/fields.ts";
import {
  areOfCluster,
  containerPlan,
  type ContainerPlan,
  type TaskContainer,
} from "../../machines/driver/container-task.ts";
import {
  Annotations,
  BoolValue,
  ConfigReference,
  ContainerSpec,
  ContainerSpec_DNSConfig,
  ContainerSpec_Isolation,
  ContainerSpec_PullOptions,
  ContainerSpec_Ulimit,
  Driver,
  Duration,
  FileTarget,
  HealthConfig,
  Int64Value,
  Mount,
  Mount_BindOptions,
  Mount_BindOptions_Propagation as Propagation,
  Mount_TmpfsOptions,
  Mount_Type as MountType,
  Mount_VolumeOptions,
  Network,
  NetworkAttachment,
  NetworkSpec,
  PortConfig,
  PortConfig_Protocol as Protocol,
  PortConfig_PublishMode as PublishMode,
  Privileges,
  Privileges_AppArmorOpts,
  Privileges_AppArmorOpts_AppArmorMode,
  Privileges_CredentialSpec,
  Privileges_SeccompOpts,
  Privileges_SeccompOpts_SeccompMode,
  Privileges_SELinuxContext,
  ResourceRequirements,
  Resources,
  SecretReference,
} from "../../proto/gen/messages.ts";
import { TaskConfig } from "../../proto/gen/nomad.ts";
import { encodeConfig, environmentScope } from "../../lib/hclspec/index.ts";

const task = {
  id: "task1",
  name: "web.2.task1",
  slot: 2,
  serviceId: "svc",
  serviceName: "web",
  serviceLabels: { tier: "front" },
  nodeId: "node1",
  nodeHostname: "host1",
  nodePlatform: { architecture: "x86_64", os: "linux" },
};

function container(spec: Partial<ContainerSpec>, more: Partial<TaskContainer> = {}): TaskContainer {
  const whole = ContainerSpec.create({ image: "bb:1", ...spec });
  return { spec: whole, networks: [], ports: [], logDriver: null, resources: null, ...more };
}

function planned(spec: Partial<ContainerSpec>, more: Partial<TaskContainer> = {}): ContainerPlan {
  const plan = containerPlan(task, container(spec, more));
  if (plan.kind === "refused") throw new Error(plan.reason);
  return plan;
}

function refused(spec: Partial<ContainerSpec>, more: Partial<TaskContainer> = {}): string {
  const plan = containerPlan(task, container(spec, more));
  return plan.kind === "refused" ? plan.reason : "";
}

/** Through the driver's own schema, as agent and plugin do it: the body of the request that creates the container. */
function made(spec: Partial<ContainerSpec>, more: Partial<TaskContainer> = {}) {
  const { config, spec: common } = planned(spec, more);
  const outcome = encodeConfig(objectSpec(taskFields), config, environmentScope({}));
  if (outcome.kind !== "encoded") throw new Error(JSON.stringify(outcome));
  const read = readConfig(taskFields, outcome.bytes) as DockerConfig;
  const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
  const request = { id: "t", config: read, task: TaskConfig.create({ dns: dnsOf(common) }), log, tell: () => {} };
  const driver: DriverConfig = {
    endpoint: "unix:///x",
    allow_privileged: false,
    infra_image: "",
    infra_command: [],
    pull_timeout: 1,
    state_dir: null,
  };
  return containerOf(request, driver) as { readonly [key: string]: unknown; readonly HostConfig: object };
}

function network(driver: string, name: string): NetworkAttachment {
  return NetworkAttachment.create({
    network: Network.create({
      id: "net1",
      spec: NetworkSpec.create({ annotations: Annotations.create({ name }) }),
      driverState: Driver.create({ name: driver }),
    }),
  });
}

test("a container service's settings reach the engine in the engine's words", (t) => {
  const body = made(
    {
      image: "reg.example/app@sha256:0123",
      command: ["/entry", "${x}"],
      args: ["-c", "echo ${HOME} %{y}"],
      dir: "/srv",
      hostname: "h-{{.Task.Slot}}",
      labels: { mine: "${z}" },
      groups: ["audio"],
      tty: true,
      openStdin: true,
      readOnly: true,
      capabilityAdd: ["NET_ADMIN"],
      capabilityDrop: ["CHOWN"],
      sysctls: { "net.ipv4.ip_forward": "1" },
      pidsLimit: 50,
      ulimits: [ContainerSpec_Ulimit.create({ name: "nofile", soft: 10, hard: 20 })],
      hosts: ["10.0.0.1 a b"],
      dnsConfig: ContainerSpec_DNSConfig.create({ nameservers: ["10.0.0.2"], search: ["x.org"], options: ["ndots:1"] }),
      init: BoolValue.create({ value: false }),
      healthcheck: HealthConfig.create({
        test: ["CMD", "true"],
        interval: Duration.create({ nanos: 300e6 }),
        retries: 2,
        startPeriod: Duration.create({ seconds: 5 }),
      }),
      mounts: [
        Mount.create({
          type: MountType.BIND,
          source: "/host",
          target: "/in",
          readonly: true,
          bindOptions: Mount_BindOptions.create({ propagation: Propagation.RSLAVE, createmountpoint: true }),
        }),
        Mount.create({
          type: MountType.VOLUME,
          source: "v-{{.Task.Slot}}",
          target: "/vol",
          volumeOptions: Mount_VolumeOptions.create({
            nocopy: true,
            labels: { of: "{{.Service.Name}}" },
            driverConfig: Driver.create({ name: "local", options: { type: "nfs" } }),
          }),
        }),
        Mount.create({
          type: MountType.TMPFS,
          target: "/tmp",
          tmpfsOptions: Mount_TmpfsOptions.create({ sizeBytes: 4096, mode: 0o1777 }),
        }),
      ],
      privileges: Privileges.create({
        noNewPrivileges: true,
        selinuxContext: Privileges_SELinuxContext.create({ user: "u", level: "s0" }),
        seccomp: Privileges_SeccompOpts.create({
          mode: Privileges_SeccompOpts_SeccompMode.CUSTOM,
          profile: new TextEncoder().encode("{}"),
        }),
        apparmor: Privileges_AppArmorOpts.create({ mode: Privileges_AppArmorOpts_AppArmorMode.DISABLED }),
      }),
    },
    {
      networks: [network("host", "host")],
      logDriver: Driver.create({ name: "json-file", options: { "max-size": "1m" } }),
      ports: [
        PortConfig.create({
          protocol: Protocol.UDP,
          targetPort: 53,
          publishedPort: 5353,
          publishMode: PublishMode.HOST,
        }),
        PortConfig.create({ targetPort: 80, publishedPort: 8080, publishMode: PublishMode.INGRESS }),
      ],
      resources: ResourceRequirements.create({
        limits: Resources.create({ memoryBytes: 100 }),
        swapBytes: Int64Value.create({ value: 50 }),
        memorySwappiness: Int64Value.create({ value: 0 }),
      }),
    },
  );
  t.like(body, {
    Image: "reg.example/app@sha256:0123",
    Entrypoint: ["/entry", "${x}"],
    Cmd: ["-c", "echo ${HOME} %{y}"],
    WorkingDir: "/srv",
    Hostname: "h-2",
    Tty: true,
    OpenStdin: true,
    ExposedPorts: { "53/udp": {} },
  });
  t.like(body["Labels"], { mine: "${z}", "com.docker.swarm.task.name": "web.2.task1" });
  t.like(body["Healthcheck"], { Test: ["CMD", "true"], Interval: 300e6, Retries: 2, StartPeriod: 5e9 });
  t.like(body.HostConfig, {
    NetworkMode: "host",
    PortBindings: { "53/udp": [{ HostIp: "", HostPort: "5353" }] },
    MemorySwap: 150,
    MemorySwappiness: 0,
    PidsLimit: 50,
    Sysctls: { "net.ipv4.ip_forward": "1" },
    Ulimits: [{ Name: "nofile", Soft: 10, Hard: 20 }],
    GroupAdd: ["audio"],
    Init: false,
    CapAdd: ["NET_ADMIN"],
    CapDrop: ["CHOWN"],
    ReadonlyRootfs: true,
    ExtraHosts: ["a:10.0.0.1", "b:10.0.0.1"],
    Dns: ["10.0.0.2"],
    DnsSearch: ["x.org"],
    DnsOptions: ["ndots:1"],
    LogConfig: { Type: "json-file", Config: { "max-size": "1m" } },
    SecurityOpt: ["label=user:u", "label=level:s0", "seccomp={}", "apparmor=unconfined", "no-new-privileges"],
  });
  const { Mounts } = body.HostConfig as { readonly Mounts: readonly object[] };
  t.like(Mounts[0], { Type: "bind", Source: "/host", Target: "/in", ReadOnly: true });
  t.like(Mounts[0], { BindOptions: { Propagation: "rslave", CreateMountpoint: true } });
  t.like(Mounts[1], { Type: "volume", Source: "v-2", VolumeOptions: { NoCopy: true, Labels: { of: "web" } } });
  t.like(Mounts[1], { VolumeOptions: { DriverConfig: { Name: "local", Options: { type: "nfs" } } } });
  t.like(Mounts[2], { Type: "tmpfs", Target: "/tmp", TmpfsOptions: { SizeBytes: 4096, Mode: 0o1777 } });
});

test("unset values are left to the image and the engine", (t) => {
  const plan = planned({});
  t.deepEqual(Object.keys(plan.config).sort(), ["image", "labels", "memory_swap", "refresh"]);
  const { Cmd, Entrypoint, Healthcheck, HostConfig, Hostname } = made({}) as Record<string, object | undefined>;
  t.deepEqual([Cmd, Entrypoint, Healthcheck, Hostname], [undefined, undefined, undefined, undefined]);
  t.like(HostConfig, { NetworkMode: "default", Memory: 0, MemorySwap: 0, CpuShares: 0, Init: null });
});

test("environment, user, grace period and limits are the task's, and files are at a container's paths", (t) => {
  const file = (name: string): FileTarget => FileTarget.create({ name, uid: "0", gid: "0", mode: 0o444 });
  const plan = planned(
    {
      env: ["A=${B}", "GONE"],
      user: "me",
      stopSignal: "SIGINT",
      pullOptions: ContainerSpec_PullOptions.create({ registryAuth: "e30=" }),
      secrets: [
        SecretReference.create({ secretId: "s", secretName: "s", file: file("key") }),
        SecretReference.create({ secretId: "s", secretName: "s", file: file("/etc/key") }),
      ],
      configs: [ConfigReference.create({ configId: "c", configName: "c", file: file("app.conf") })],
      mounts: [Mount.create({ type: MountType.CLUSTER, source: "vol", target: "/data", readonly: true })],
    },
    {
      resources: ResourceRequirements.create({
        limits: Resources.create({ nanoCpus: 5e8, memoryBytes: 2 ** 20 }),
        reservations: Resources.create({ memoryBytes: 2 ** 19 }),
      }),
    },
  );
  t.deepEqual(plan.spec.env, ["A=$${B}"]);
  t.like(plan.spec, { user: "me", stopSignal: "SIGINT" });
  t.is(plan.config["registry_auth"], "e30=");
  t.deepEqual(plan.files, [
    { kind: "secrets", path: "key", target: "/run/secrets/key" },
    { kind: "secrets", path: "etc/key", target: "/etc/key" },
    { kind: "configs", path: "app.conf", target: "/app.conf" },
  ]);
  t.like(plan.spec.mounts[0], { source: "vol", target: "/data", readonly: true });
  t.deepEqual(plan.limits, { nanoCpus: 5e8, memoryBytes: 2 ** 20, memoryReservedBytes: 2 ** 19, oomScoreAdj: 0 });
});

test("in networks of the cluster the node creates a container's network setup, including ports, and the engine nothing", (t) => {
  const ports = [PortConfig.create({ targetPort: 80, publishedPort: 8080, publishMode: PublishMode.HOST })];
  const networks = [network("overlay", "one"), network("overlay", "two")];
  t.true(areOfCluster(networks));
  t.false(areOfCluster([network("bridge", "mine")]));
  t.false(areOfCluster([]));
  const plan = planned({ hostname: "h-{{.Task.Slot}}" }, { networks, ports });
  t.is(plan.config["network_mode"], undefined);
  t.is(plan.config["publish"], undefined);
  t.is(plan.hostname, "h-2");
  t.is(planned({}, { networks }).hostname, "");
  t.is(planned({}, { networks: [network("bridge", "mine")], ports }).config["network_mode"], "mine");
});

test("CT1: features that a node of ours lacks are rejected with a sentence", (t) => {
  const mixed = [network("overlay", "wide"), network("bridge", "mine")];
  t.regex(refused({}, { networks: mixed }), /both the node-local network mine and a cluster network/);
  t.regex(refused({}, { networks: [network("bridge", "a"), network("bridge", "b")] }), /only one node-local network/);
  t.is(planned({}, { networks: [network("null", "none")] }).config["network_mode"], "none");
  t.is(planned({}, { networks: [network("bridge", "mine")] }).config["network_mode"], "mine");
  t.regex(refused({ isolation: ContainerSpec_Isolation.ISOLATION_HYPERV }), /Windows/);
  const credentialSpec = Privileges_CredentialSpec.create({ file: "x" });
  t.regex(refused({ privileges: Privileges.create({ credentialSpec }) }), /Windows/);
  t.regex(refused({ mounts: [Mount.create({ type: MountType.NPIPE, target: "/p" })] }), /Windows/);
  t.regex(refused({ hostname: "{{.Task.Colour}}" }), /the template of the hostname cannot be expanded: .*Colour/);
  const tmpfsOptions = Mount_TmpfsOptions.create({ options: "noexec" });
  t.regex(refused({ mounts: [Mount.create({ type: MountType.TMPFS, target: "/t", tmpfsOptions })] }), /"noexec"/);
});
