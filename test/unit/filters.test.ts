import test from "ava";
import { networkLabels } from "../../machines/driver/labels.ts";
import { describeVerdict, Tally, verdictText } from "../../machines/scheduling/explain.ts";
import { demandOf, judge, Verdict } from "../../machines/scheduling/filters.ts";
import { NodeSet } from "../../machines/scheduling/node-set.ts";
import {
  ContainerSpec,
  DiscreteGenericResource,
  Driver,
  Endpoint,
  EngineDescription,
  GenericResource,
  GenericRuntimeSpec,
  Mount,
  Mount_Type,
  Mount_VolumeOptions,
  NamedGenericResource,
  Network,
  NetworkAttachment,
  NetworkSpec,
  Node as NodeMessage,
  NodeDescription,
  NodeSpec_Availability,
  NodeStatus_State,
  Placement,
  Platform,
  PortConfig,
  PortConfig_PublishMode,
  ResourceRequirements,
  Resources,
  TaskSpec,
  TaskState,
  type Node,
  type Task,
} from "../../proto/gen/messages.ts";
import { containerSpec, inState, pendingTask, readyNode } from "../support/scheduling.ts";

/** The verdict on a node that already runs `others`. */
function verdict(task: Task, node: Node = readyNode("n1"), others: readonly Task[] = []): Verdict {
  const set = new NodeSet();
  set.put(node);
  for (const other of others) set.follow(inState(other, TaskState.RUNNING, { nodeId: node.id }));
  const info = set.find(node.id);
  if (info === undefined) throw new Error("the node does not exist");
  return judge(demandOf(task), info);
}

const withSpec = (fields: Partial<TaskSpec>): Task => pendingTask("t", { spec: containerSpec(fields) });
const reserving = (resources: Partial<Resources>): Partial<TaskSpec> => ({
  resources: ResourceRequirements.create({ reservations: Resources.create(resources) }),
});
const discrete = (kind: string, value: number): GenericResource =>
  GenericResource.create({ discreteResourceSpec: DiscreteGenericResource.create({ kind, value }) });
const named = (kind: string, value: string): GenericResource =>
  GenericResource.create({ namedResourceSpec: NamedGenericResource.create({ kind, value }) });

test("only a READY and ACTIVE node gets new tasks", (t) => {
  t.is(verdict(pendingTask("t")), Verdict.fits);
  for (const state of [NodeStatus_State.UNKNOWN, NodeStatus_State.DOWN, NodeStatus_State.DISCONNECTED]) {
    t.is(verdict(pendingTask("t"), readyNode("n", { state })), Verdict.notReady);
  }
  for (const availability of [NodeSpec_Availability.PAUSE, NodeSpec_Availability.DRAIN]) {
    t.is(verdict(pendingTask("t"), readyNode("n", { availability })), Verdict.notReady);
  }
});

test("reservations use what unfinished tasks leave free", (t) => {
  const half = withSpec(reserving({ nanoCpus: 2e9 }));
  t.is(verdict(half, readyNode("n"), [half]), Verdict.fits);
  t.is(verdict(half, readyNode("n"), [half, pendingTask("u", { spec: half.spec })]), Verdict.resources);
  t.is(verdict(withSpec(reserving({ memoryBytes: 5 * 2 ** 30 }))), Verdict.resources);

  const set = new NodeSet();
  set.put(readyNode("n", { cpus: 2 }));
  const info = set.find("n");
  t.truthy(info);
  if (info === undefined) return;
  set.follow(inState(half, TaskState.RUNNING, { nodeId: "n", desiredState: TaskState.SHUTDOWN }));
  t.is(judge(demandOf(half), info), Verdict.resources, "a stopping task holds its reservation until it has stopped");
  set.follow(inState(half, TaskState.SHUTDOWN, { nodeId: "n", desiredState: TaskState.SHUTDOWN }));
  t.is(judge(demandOf(half), info), Verdict.fits);
});

test("generic resources are counted, or assigned by name", (t) => {
  const wantsTwo = withSpec(reserving({ generic: [discrete("gpu", 2)] }));
  t.is(verdict(wantsTwo), Verdict.resources);
  t.is(verdict(wantsTwo, readyNode("n", { generic: [discrete("gpu", 2)] })), Verdict.fits);
  const uses = pendingTask("u", {
    spec: wantsTwo.spec,
    assignedGenericResources: [named("gpu", "a"), named("gpu", "b")],
  });
  const three = readyNode("n", { generic: ["a", "b", "c"].map((value) => named("gpu", value)) });
  t.is(verdict(wantsTwo, three, [uses]), Verdict.resources);

  const wantsOneAndOne = withSpec(reserving({ generic: [discrete("gpu", 1), discrete("gpu", 1)] }));
  t.is(verdict(wantsOneAndOne, readyNode("n", { generic: [named("gpu", "a")] })), Verdict.resources, "added up");
  t.is(verdict(wantsOneAndOne, readyNode("n", { generic: [discrete("gpu", 2)] })), Verdict.fits);

  const set = new NodeSet();
  set.put(three);
  const stock = set.find("n")?.generic;
  t.deepEqual(stock?.choose([{ kind: "gpu", count: 2 }]), [named("gpu", "a"), named("gpu", "b")]);
});

test("drivers of volumes, networks and logs must exist, with or without the tag latest", (t) => {
  const mount = (name: string): Task =>
    withSpec({
      container: ContainerSpec.create({
        mounts: [
          Mount.create({
            type: Mount_Type.VOLUME,
            volumeOptions: Mount_VolumeOptions.create({ driverConfig: Driver.create({ name }) }),
          }),
        ],
      }),
    });
  t.is(verdict(mount("local")), Verdict.fits);
  t.is(verdict(mount("nfs")), Verdict.plugin);
  t.is(verdict(mount("nfs"), readyNode("n", { plugins: ["Volume/nfs:latest"] })), Verdict.fits);
  const attached = pendingTask("t", {
    networks: [
      NetworkAttachment.create({
        network: Network.create({ id: "net", driverState: Driver.create({ name: "weave" }) }),
      }),
    ],
  });
  t.is(verdict(attached), Verdict.plugin);
  t.is(verdict(withSpec({ logDriver: Driver.create({ name: "splunk" }) })), Verdict.plugin);
  t.is(verdict(withSpec({ logDriver: Driver.create({ name: "none" }) })), Verdict.fits);
  t.is(
    verdict(
      withSpec({ logDriver: Driver.create({ name: "splunk" }) }),
      readyNode("n", { plugins: ["Network/overlay"] }),
    ),
    Verdict.fits,
  );
});

test("a driver's task goes where the driver is, and a container only where an engine is", (t) => {
  const agent = readyNode("n", { plugins: ["Driver/exec"] });
  const exec = pendingTask("t", { spec: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "exec" }) }) });
  t.is(verdict(exec, agent), Verdict.fits);
  t.is(verdict(exec), Verdict.plugin);
  t.is(verdict(pendingTask("t"), agent), Verdict.plugin);
  t.is(verdict(pendingTask("t"), readyNode("n", { plugins: ["Driver/exec", "Network/overlay"] })), Verdict.plugin);
  const docker = readyNode("n", { plugins: ["Driver/docker", "Driver/exec", "Network/overlay", "Volume/local"] });
  t.is(verdict(pendingTask("t"), docker), Verdict.fits);
  const plugin = pendingTask("t", {
    spec: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "plugin" }) }),
  });
  t.is(verdict(plugin), Verdict.fits, "an engine runs engine plugins");
  t.is(verdict(plugin, agent), Verdict.plugin);
});

test("platforms match by either name of an architecture, and an empty part matches all", (t) => {
  const on = (...platforms: readonly (readonly [string, string])[]): Task =>
    withSpec({
      placement: Placement.create({
        platforms: platforms.map(([architecture, os]) => Platform.create({ architecture, os })),
      }),
    });
  t.is(verdict(on(["amd64", "linux"])), Verdict.fits);
  t.is(verdict(on(["arm64", "linux"])), Verdict.platform);
  t.is(verdict(on(["arm64", "linux"], ["", "linux"])), Verdict.fits);
  t.is(verdict(on(["amd64", "windows"])), Verdict.platform);
  t.is(verdict(on(["arm64", ""]), readyNode("n", { platform: ["aarch64", "linux"] })), Verdict.fits);
});

test("a published host port is used once on a node, for each protocol", (t) => {
  const port = (
    publishedPort: number,
    publishMode: PortConfig_PublishMode = PortConfig_PublishMode.HOST,
    protocol = 0,
  ): Partial<Task> => ({
    endpoint: Endpoint.create({
      ports: [PortConfig.create({ publishedPort, publishMode, protocol: protocol as never })],
    }),
  });
  const holder = pendingTask("other", port(80));
  t.is(verdict(pendingTask("t", port(80)), readyNode("n"), [holder]), Verdict.hostPort);
  t.is(verdict(pendingTask("t", port(80, PortConfig_PublishMode.HOST, 1)), readyNode("n"), [holder]), Verdict.fits);
  t.is(verdict(pendingTask("t", port(80, PortConfig_PublishMode.INGRESS)), readyNode("n"), [holder]), Verdict.fits);
  t.is(verdict(pendingTask("t", port(0)), readyNode("n"), [pendingTask("other", port(0))]), Verdict.fits);
});

test("a node gets at most the maximum replicas of a service, not counting stopping ones", (t) => {
  const one = withSpec({ placement: Placement.create({ maxReplicas: 1 }) });
  t.is(verdict(one, readyNode("n"), [pendingTask("u")]), Verdict.maxReplicas);
  t.is(verdict(one, readyNode("n"), [pendingTask("u", { desiredState: TaskState.SHUTDOWN })]), Verdict.fits);
  t.is(verdict(one, readyNode("n"), [pendingTask("u", { serviceId: "other" })]), Verdict.fits);
});

test("a cluster volume that does not exist is on no node", (t) => {
  t.is(
    verdict(
      withSpec({
        container: ContainerSpec.create({ mounts: [Mount.create({ type: Mount_Type.CLUSTER, source: "v" })] }),
      }),
    ),
    Verdict.volumes,
  );
});

test("a node is charged to the first filter that rejects it", (t) => {
  const choosy = withSpec({
    ...reserving({ nanoCpus: 9e9 }),
    placement: Placement.create({ constraints: ["node.role==manager"] }),
  });
  t.is(verdict(choosy, readyNode("n", { state: NodeStatus_State.DOWN })), Verdict.notReady);
  t.is(verdict(choosy), Verdict.resources);
  t.is(verdict(choosy, readyNode("n", { cpus: 16 })), Verdict.constraint);
});

test("an explanation sorts the filters by the number of nodes that they excluded, in SwarmKit's words", (t) => {
  const tally = new Tally();
  t.is(tally.text(), "no suitable node");
  tally.set(0, Verdict.notReady);
  tally.set(1, Verdict.constraint);
  tally.set(40, Verdict.constraint);
  t.is(
    tally.text(),
    "no suitable node (scheduling constraints not satisfied on 2 nodes; 1 node not available for new tasks)",
  );
  tally.set(1, Verdict.fits);
  tally.set(40, Verdict.maxReplicas);
  t.is(tally.text(), "no suitable node (1 node not available for new tasks; max replicas per node limit exceed)");
  t.deepEqual(
    [Verdict.notReady, Verdict.resources, Verdict.plugin, Verdict.platform, Verdict.hostPort, Verdict.volumes].map(
      (each) => verdictText(each, 3),
    ),
    [
      "3 nodes not available for new tasks",
      "insufficient resources on 3 nodes",
      "missing plugin on 3 nodes",
      "unsupported platform on 3 nodes",
      "host-mode port already in use on 3 nodes",
      "cannot fulfill requested CSI volume mounts on 3 nodes",
    ],
  );
});

test("a task on a network goes where networks exist, and one on the routing mesh to no agent; both are reported", (t) => {
  const network = (ingress: boolean): Network =>
    Network.create({
      id: "net",
      spec: NetworkSpec.create({ ingress }),
      driverState: Driver.create({ name: "overlay" }),
    });
  const onNetwork = (ingress: boolean): Task =>
    pendingTask("t", {
      spec: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "exec" }) }),
      networks: [NetworkAttachment.create({ network: network(ingress), addresses: ["10.0.0.5/24"] })],
    });
  const able = readyNode("able", { plugins: ["Driver/exec", "Network/overlay"] });
  const plain = readyNode("unable", { plugins: ["Driver/exec"] });
  const engine = EngineDescription.patch(plain.description?.engine ?? EngineDescription.create(), {
    labels: networkLabels("the agent does not run as root"),
  });
  const description = NodeDescription.patch(plain.description ?? NodeDescription.create(), { engine });
  const unable = NodeMessage.patch(plain, { description });
  t.is(verdict(onNetwork(false), able), Verdict.fits);
  t.is(verdict(onNetwork(false), unable), Verdict.plugin);
  t.is(verdict(onNetwork(true), able), Verdict.plugin);
  const set = new NodeSet();
  for (const each of [able, unable]) set.put(each);
  const said = (task: Task, id: string): string =>
    describeVerdict(Verdict.plugin, demandOf(task), set.find(id) as NonNullable<ReturnType<NodeSet["find"]>>, id);
  t.regex(said(onNetwork(false), "unable"), /cannot create networks for tasks: the agent does not run as root$/);
  t.regex(said(onNetwork(true), "able"), /no routing mesh: .*mode=host$/);

  // Containers too, where there is an engine for them; a stock engine has the mesh.
  const container = (ingress: boolean): Task =>
    pendingTask("t", { networks: [NetworkAttachment.create({ network: network(ingress) })] });
  const docker = readyNode("docker", { plugins: ["Driver/docker", "Driver/exec", "Network/overlay", "Volume/local"] });
  t.is(verdict(container(false), docker), Verdict.fits);
  t.is(verdict(container(true), docker), Verdict.plugin);
  t.is(verdict(container(true), readyNode("stock", { plugins: ["Network/overlay", "Volume/local"] })), Verdict.fits);
  t.is(verdict(container(false), able), Verdict.plugin);
  set.put(docker);
  t.regex(said(container(true), "docker"), /no routing mesh: /);
});
