// The page's model of the cluster: objects, the matrix, texts, forms, and what each role is offered.
import test from "ava";
import { networkSpec } from "../../cli/network/spec.ts";
import { accessByPath } from "../../edges/grpc/roles.ts";
import { predefinedLabel } from "../../machines/allocation/new-networks.ts";
import { checkNetworkSpec } from "../../machines/validation/network.ts";
import {
  Annotations,
  ContainerSpec,
  ControlRolloutRequest_Action,
  ControlService,
  LogMessage,
  LogStream,
  Meta,
  Network,
  NetworkAttachment,
  NetworkAttachmentConfig,
  NetworkSpec,
  Node,
  NodeDescription,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  Object as Watched,
  PlannedStep,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Timestamp,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Version,
  WatchActionKind,
  WatchMessage_Event,
} from "../../proto/gen/cluster.ts";
import { TaskAccessService } from "../../proto/gen/messages.ts";
import { objectOf } from "../../ui/model/actor-object.ts";
import { CallError, LostCallError } from "../../ui/model/call-error.ts";
import { commandWords } from "../../ui/model/cluster/command-words.ts";
import { eventLine } from "../../ui/model/cluster/events.ts";
import { failureText } from "../../ui/model/cluster/failures.ts";
import { logLine, tailOf } from "../../ui/model/cluster/log-lines.ts";
import { cardsOf, cellAfter } from "../../ui/model/cluster/matrix.ts";
import { emptyNetwork, networkErrors, networkSpecOf, removalOf } from "../../ui/model/cluster/networks.ts";
import { availabilityEffect, cpusOf, nodeNames } from "../../ui/model/cluster/nodes.ts";
import { ClusterObjects } from "../../ui/model/cluster/objects.ts";
import { may, neededRoles, type Action } from "../../ui/model/cluster/permissions.ts";
import { stepRow } from "../../ui/model/cluster/plan-text.ts";
import { countsOf, removalEffect, rolloutButtons, rolloutText } from "../../ui/model/cluster/services.ts";
import { emptySpec, formErrors, formOf, rebased, specWith } from "../../ui/model/cluster/spec-form.ts";
import { specFrom, specYaml } from "../../ui/model/cluster/spec-yaml.ts";
import { lookOf } from "../../ui/model/cluster/tasks.ts";
import { hashOf, routeOf } from "../../ui/model/route.ts";

const meta = (index: number): Meta =>
  Meta.create({ version: Version.create({ index }), createdAt: Timestamp.create({ seconds: index }) });

function task(id: string, fields: Partial<Task> = {}, state: TaskState = TaskState.RUNNING, err = ""): Task {
  return Task.create({
    id,
    meta: meta(1),
    serviceId: "s1",
    slot: 1,
    nodeId: "n1",
    serviceAnnotations: Annotations.create({ name: "web" }),
    status: TaskStatus.create({ state, err }),
    desiredState: TaskState.RUNNING,
    ...fields,
  });
}
const node = (id: string, hostname: string, state: NodeStatus_State = NodeStatus_State.READY): Node =>
  Node.create({
    id,
    meta: meta(1),
    description: NodeDescription.create({ hostname, resources: Resources.create({ nanoCpus: 4e9 }) }),
    status: NodeStatus.create({ state }),
  });
const event = (action: WatchActionKind, object: Partial<Watched>): WatchMessage_Event =>
  WatchMessage_Event.create({ action, object: Watched.create(object) });
const { WATCH_ACTION_CREATE, WATCH_ACTION_REMOVE, WATCH_ACTION_UPDATE } = WatchActionKind;
const web = Service.create({
  id: "s1",
  meta: meta(1),
  spec: ServiceSpec.create({
    annotations: Annotations.create({ name: "web" }),
    task: TaskSpec.create({ container: ContainerSpec.create({ image: "web:1", env: ["A=1"], user: "nobody" }) }),
    replicated: ReplicatedService.create({ replicas: 2 }),
  }),
});
const names = nodeNames([node("n1", "one"), node("n2", "two")]);

test("O1: an older change never replaces a newer object, in any order of lists and changes", (t) => {
  const objects = new ClusterObjects();
  objects.list({ nodes: [], services: [], networks: [], tasks: [task("t1", { meta: meta(5) }, TaskState.RUNNING)] });
  objects.apply(event(WATCH_ACTION_UPDATE, { task: task("t1", { meta: meta(4) }, TaskState.STARTING) }));
  t.is(objects.tasks.get("t1")?.status?.state, TaskState.RUNNING);
  const { version } = objects;
  objects.apply(event(WATCH_ACTION_UPDATE, { task: task("t1", { meta: meta(6) }, TaskState.FAILED) }));
  t.is(objects.tasks.get("t1")?.status?.state, TaskState.FAILED);
  t.true(objects.version > version);
  objects.apply(event(WATCH_ACTION_REMOVE, { task: task("t1", { meta: meta(6) }) }));
  t.is(objects.tasks.size, 0);
  t.is(objects.apply(event(WATCH_ACTION_CREATE, {})), null, "an object that the page does not show");
});

test("each state of a task has a look, and a running task that should stop another", (t) => {
  const looks = (["NEW", "ASSIGNED", "RUNNING", "COMPLETE", "SHUTDOWN", "REJECTED", "ORPHANED"] as const).map((state) =>
    lookOf(task("t", {}, TaskState[state])),
  );
  t.deepEqual(looks, ["waiting", "starting", "running", "complete", "stopped", "failed", "lost"]);
  t.is(lookOf(task("t", { desiredState: TaskState.SHUTDOWN })), "stopping");
  t.is(lookOf(task("t", { desiredState: TaskState.COMPLETE })), "running", "a task of a job");
});

test("the matrix has a card per node, troubled nodes first, and tasks without a node before all", (t) => {
  const objects = new ClusterObjects();
  objects.list({
    nodes: [node("n1", "host-10"), node("n2", "host-9"), node("n3", "host-11", NodeStatus_State.DOWN)],
    services: [web],
    networks: [],
    tasks: [
      task("t1"),
      task("old", { meta: meta(0) }, TaskState.FAILED),
      task("t2", { slot: 2, nodeId: "" }, TaskState.PENDING),
      task("t3", { slot: 3, nodeId: "n2" }, TaskState.FAILED, "exit code 1"),
      task("t4", { slot: 4, nodeId: "gone" }),
    ],
  });
  const cards = cardsOf(objects);
  t.deepEqual(
    cards.map(({ groups, name }) => [name, groups.flatMap(({ cells }) => cells.map(({ id }) => id))]),
    [
      ["no node yet", ["t2", "t4"]],
      ["host-11", []],
      ["host-9", ["t3"]],
      // Without the ended task whose slot has a successor.
      ["host-10", ["t1"]],
    ],
  );
  t.is(cards[2]?.groups[0]?.cells[0]?.label, "web.3: failed (exit code 1)");
  const before = cards[3]?.signature;
  objects.apply(event(WATCH_ACTION_UPDATE, { task: task("t1", { meta: meta(2) }, TaskState.FAILED) }));
  const after = cardsOf(objects);
  t.not(after[3]?.signature, before);
  t.is(after[2]?.signature, cards[2]?.signature);
});

test("arrow keys lead through cells of a card and to the next card", (t) => {
  const objects = new ClusterObjects();
  objects.list({
    nodes: [node("n1", "a"), node("n2", "b"), node("n3", "c")],
    services: [],
    networks: [],
    tasks: [task("t1"), task("t2", { slot: 2 }), task("t3", { slot: 3, nodeId: "n3" })],
  });
  const cards = cardsOf(objects);
  t.is(cellAfter("Home", "", cards), "t1");
  t.is(cellAfter("ArrowRight", "t1", cards), "t2");
  t.is(cellAfter("ArrowDown", "t2", cards), "t3", "past the card without tasks");
  t.is(cellAfter("ArrowUp", "t3", cards), "t1");
  t.is(cellAfter("End", "t1", cards), "t3");
  t.is(cellAfter("ArrowRight", "t3", cards), "t3");
  t.is(cellAfter("x", "t1", cards), null);
});

test("reservations are those of tasks that have not ended", (t) => {
  const spec = TaskSpec.create({
    resources: ResourceRequirements.create({ reservations: Resources.create({ nanoCpus: 5e8 }) }),
  });
  const tasks = [task("t1", { spec }), task("t2", { spec }, TaskState.FAILED), task("t3")];
  t.deepEqual(cpusOf(node("n1", "one"), tasks), { reserved: 0.5, total: 4 });
});

test("replicas count running tasks, and the effect of a removal names the nodes", (t) => {
  const tasks = [
    task("t1"),
    task("t2", { slot: 2, nodeId: "n2" }, TaskState.STARTING),
    task("t3", {}, TaskState.FAILED),
  ];
  t.deepEqual(countsOf(web, tasks), { running: 1, wanted: 2, failed: 1 });
  t.regex(removalEffect(web, tasks, names), /^2 tasks stop on one, two, and clients can no longer reach web/);
  t.regex(removalEffect(web, [], names), /^web has no tasks to stop/);
});

test("the effect of draining names tasks and services, and says what pausing leaves", (t) => {
  const effect = (next: NodeSpec_Availability, tasks: readonly Task[]): string =>
    availabilityEffect(next, "one", tasks, () => "web");
  t.regex(
    effect(NodeSpec_Availability.DRAIN, [task("t1"), task("t2")]),
    /its 2 tasks stop and start on other nodes: web/,
  );
  t.regex(effect(NodeSpec_Availability.DRAIN, []), /none that would move/);
  t.regex(effect(NodeSpec_Availability.PAUSE, [task("t1")]), /Its 1 task continue/);
  t.regex(effect(NodeSpec_Availability.ACTIVE, []), /gets tasks again/);
});

test("buttons of a rollout follow its phase; aborting an update shows the plan of the rollback", (t) => {
  const texts = (phase: string): string =>
    rolloutButtons(phase)
      .map(({ text }) => text)
      .join(", ");
  t.is(texts("none"), "");
  t.is(texts("completed"), "");
  t.is(texts("updating"), "Pause, Step, Abort …");
  t.is(texts("paused"), "Resume, Step, Abort …");
  t.is(texts("stepping"), "Pause, Resume, Abort …");
  t.is(texts("rolling back"), "Pause, Step, Abort");
  t.is(texts("rollback paused"), "Resume, Step");
  const abort = rolloutButtons("updating").find(({ action }) => action === ControlRolloutRequest_Action.ABORT);
  t.true(abort?.isPlanned);
  const updateStatus = UpdateStatus.create({ state: UpdateStatus_UpdateState.ROLLBACK_PAUSED });
  t.is(rolloutText(Service.create({ updateStatus })), "rollback paused");
});

test("a form changes only the fields that a reader changed", (t) => {
  const spec = ServiceSpec.patch(web.spec ?? ServiceSpec.create({}), {
    update: UpdateConfig.create({ parallelism: 2, failureAction: UpdateConfig_FailureAction.ROLLBACK }),
  });
  const form = formOf(spec);
  t.is(form.failureAction, "rollback");
  t.deepEqual(ServiceSpec.toJson(specWith(spec, form)), ServiceSpec.toJson(spec));
  const changed = specWith(spec, { ...form, image: "web:2", env: "A=1\nB=2\n", delay: "1.5", replicas: "3" });
  t.deepEqual(changed.task?.container?.env, ["A=1", "B=2"]);
  t.is(changed.task?.container?.user, "nobody", "a field that the form does not show");
  t.is(changed.update?.delay?.seconds, 1);
  t.is(changed.update?.delay?.nanos, 5e8);
  t.is(changed.update?.failureAction, UpdateConfig_FailureAction.ROLLBACK);
  t.is(changed.replicated?.replicas, 3);
  t.is(specWith(web.spec ?? spec, formOf(web.spec ?? spec)).update, null, "defaults are not written");
});

test("a form keeps what it does not change in ports and networks", (t) => {
  const base = specWith(emptySpec("container"), {
    ...formOf(emptySpec("container")),
    name: "web",
    image: "web:1",
    ports: "8080:80\n53:53/udp",
    networks: ["net1"],
  });
  t.is(formOf(base).ports, "8080:80\n53:53/udp");
  const attached = ServiceSpec.patch(base, {
    task: TaskSpec.patch(base.task ?? TaskSpec.create({}), {
      networks: [NetworkAttachmentConfig.create({ target: "net1", aliases: ["www"] })],
    }),
  });
  const next = specWith(attached, { ...formOf(attached), networks: ["net1", "net2"], ports: "8080:80" });
  t.deepEqual(
    next.task?.networks.map(({ aliases, target }) => [target, ...aliases]),
    [["net1", "www"], ["net2"]],
  );
  t.deepEqual(
    next.endpoint?.ports.map(({ publishedPort }) => publishedPort),
    [8_080],
  );
});

test("processes are edited like containers", (t) => {
  const empty = emptySpec("exec");
  const spec = specWith(empty, {
    ...formOf(empty),
    name: "p",
    image: "/bin/cat",
    args: "-u\n/dev/stdin",
    mode: "global",
  });
  const form = formOf(spec);
  t.like(form, { runtime: "exec", image: "/bin/cat", args: "-u\n/dev/stdin", mode: "global" });
  t.is(spec.replicated, null);
});

test("a form with errors says which field is wrong, and what is expected", (t) => {
  const form = formOf(web.spec ?? ServiceSpec.create({}));
  t.deepEqual(formErrors(form), {});
  const wrong = formErrors({
    ...form,
    name: "a b",
    image: " ",
    replicas: "-1",
    env: "=x",
    ports: "99999:80",
    delay: "soon",
    maxFailureRatio: "2",
    parallelism: "1.5",
  });
  t.deepEqual(Object.keys(wrong).toSorted(), [
    "delay",
    "env",
    "image",
    "maxFailureRatio",
    "name",
    "parallelism",
    "ports",
    "replicas",
  ]);
  t.regex(wrong.ports ?? "", /expected PUBLISHED:TARGET/);
});

test("a plan made again keeps a reader's changes, and takes over those of others", (t) => {
  const base = web.spec ?? ServiceSpec.create({});
  const form = { ...formOf(base), replicas: "5" };
  const now = specWith(base, { ...formOf(base), image: "web:9" });
  const again = specWith(now, rebased(form, base, now));
  t.is(again.replicated?.replicas, 5);
  t.is(again.task?.container?.image, "web:9");
});

test("a spec as YAML comes back, and misspelt fields are named", (t) => {
  const base = web.spec ?? ServiceSpec.create({});
  const back = specFrom(specYaml(ServiceSpec, base));
  t.deepEqual(typeof back === "string" ? back : ServiceSpec.toJson(back), ServiceSpec.toJson(base));
  const told = (text: string): string => {
    const found = specFrom(text);
    return typeof found === "string" ? found : "";
  };
  t.regex(told("{"), /^The text is not YAML: .*line 1/);
  t.regex(told("task: {}\ntask: {}"), /^The text is not YAML: Map keys must be unique/);
  t.regex(told("[]"), /^Expected the fields of a spec/);
  t.is(
    specFrom(`{"annotations": {"name": "web"}, "tusk": {}, "task": {"container": {"imagine": "x"}}}`),
    "Unknown fields or values: tusk, task.container.imagine",
  );
  t.is(specFrom(`{"update": {"order": "SOMETIMES"}}`), "Unknown fields or values: update.order");
  t.is(typeof specFrom(`{"replicated": {"replicas": "3"}}`), "object");
  t.is(
    specFrom("annotations: { name: web, labels: { release: 1.10 } }"),
    "Unknown fields or values: annotations.labels.release (a text: put it in quotes)",
  );
});

test("a network's form accepts what the server accepts, and gives the spec of 'muster network create'", (t) => {
  const form = { ...emptyNetwork, name: "back" };
  t.deepEqual(NetworkSpec.toJson(networkSpecOf(form)), NetworkSpec.toJson(networkSpec("back", {})));
  const flags = {
    subnet: ["10.1.0.0/16"],
    gateway: ["10.1.0.1"],
    opt: ["encrypted"],
    attachable: true,
    internal: true,
  };
  const full = {
    ...form,
    subnet: " 10.1.0.0/16",
    gateway: "10.1.0.1 ",
    encrypted: true,
    attachable: true,
    internal: true,
  };
  t.deepEqual(networkErrors(full, []), {});
  t.deepEqual(NetworkSpec.toJson(networkSpecOf(full)), NetworkSpec.toJson(networkSpec("back", flags)));
  for (const name of ["", "a", "a-b_c", "a.b", "-a", "a-", "ä", "a".repeat(63), "a".repeat(64)])
    t.is("name" in networkErrors({ ...form, name }, []), checkNetworkSpec(networkSpec(name, {})) !== null, name);
  const known = Network.create({ id: "n1", spec: networkSpec("back", {}) });
  t.like(networkErrors(form, [known]), { name: "there is a network back already" });
  t.deepEqual(Object.keys(networkErrors({ ...form, driver: " ", subnet: "10.1", gateway: "x" }, [])), [
    "driver",
    "subnet",
    "gateway",
  ]);
  t.like(networkErrors({ ...form, gateway: "10.1.0.1" }, []), { gateway: "a gateway needs a subnet" });
});

test("the removal of a network names who uses it, and what it takes from a later rollback", (t) => {
  const network = Network.create({ id: "n1", spec: networkSpec("back", {}) });
  const attached = ServiceSpec.create({
    annotations: Annotations.create({ name: "web" }),
    task: TaskSpec.create({ networks: [NetworkAttachmentConfig.create({ target: "n1" })] }),
  });
  const bare = ServiceSpec.create({ annotations: Annotations.create({ name: "web" }) });
  const user = Service.create({ id: "s1", spec: attached });
  const former = Service.create({ id: "s1", spec: bare, previousSpec: attached });
  const on = { networks: [NetworkAttachment.create({ network })] };
  t.deepEqual(removalOf(network, [user], []), {
    isPossible: false,
    text: "back is in use by web: update or remove it first.",
  });
  t.regex(removalOf(network, [former], [task("t1", on)]).text, /^1 task is still attached to back: /);
  const after = removalOf(network, [former], [task("t1", on, TaskState.SHUTDOWN)]);
  t.true(after.isPossible);
  t.regex(after.text, /^No task uses back\. The previous spec of web uses it: /);
  const predefined = Network.patch(network, {
    spec: NetworkSpec.create({
      annotations: Annotations.create({ name: "host", labels: { [predefinedLabel]: "true" } }),
    }),
  });
  t.false(removalOf(predefined, [], []).isPossible);
});

test("an actor leads to the object that it is about", (t) => {
  t.deepEqual(objectOf("rollout/s1"), { view: "cluster", part: "service", id: "s1" });
  t.deepEqual(objectOf("session/n1"), { view: "cluster", part: "node", id: "n1" });
  t.deepEqual(objectOf("agent-task/t1"), { view: "cluster", part: "task", id: "t1" });
  for (const id of ["ledger", "rollout/", "watch/s1", ""]) t.is(objectOf(id), null, id);
});

test("events tell changes that a reader sees, and no others", (t) => {
  const objects = new ClusterObjects();
  const line = (...args: Parameters<typeof event>) => {
    const change = objects.apply(event(...args));
    return change === null ? null : eventLine(change, 1, 0, names);
  };
  t.like(line(WATCH_ACTION_CREATE, { task: task("t1") }), {
    kind: "task",
    name: "web.1",
    text: "created, running on one",
  });
  t.is(line(WATCH_ACTION_UPDATE, { task: task("t1", { meta: meta(2) }) }), null);
  t.like(line(WATCH_ACTION_UPDATE, { task: task("t1", { meta: meta(3) }, TaskState.FAILED, "exit code 1") }), {
    text: "failed on one: exit code 1",
    isBad: true,
  });
  t.like(line(WATCH_ACTION_REMOVE, { task: task("t1", { meta: meta(3) }) }), { text: "removed", isBad: false });
  t.like(line(WATCH_ACTION_UPDATE, { node: node("n1", "one", NodeStatus_State.DOWN) }), { text: "down", isBad: true });
});

test("steps of a plan name batch, task and nodes", (t) => {
  const step = PlannedStep.create({
    kind: "replace",
    slot: 2,
    batch: 1,
    fromNodeName: "one",
    nodeName: "two",
    reasons: ["a", "b"],
  });
  t.deepEqual(stepRow(step, "web"), {
    batch: "1",
    action: "replace",
    task: "web.2",
    from: "one",
    to: "two",
    why: "a; b",
  });
  t.is(stepRow(PlannedStep.create({ kind: "create", slot: 3 }), "web").to, "pending");
  t.is(stepRow(PlannedStep.create({ kind: "remove", fromNodeName: "one" }), "web").task, "web.one");
});

test("failed calls are sentences with the cause and what to do", (t) => {
  t.regex(
    failureText("scale web", new CallError(10, "update out of sequence")),
    /^Cannot scale web: it was changed in the meantime. Nothing was done/,
  );
  t.regex(failureText("scale web", new LostCallError(14, "x")), /It may or may not have been done/);
  t.is(failureText("scale web", new CallError(7, "no")), "Cannot scale web: permission denied: no");
  t.is(failureText("scale web", new CallError(3, "replicas: too many")), "Cannot scale web: replicas: too many");
});

test("lines of output lose colours, and keep which stream they are from", (t) => {
  const message = LogMessage.create({
    data: new TextEncoder().encode("\u001b[31mred\u001b[0m\r\n"),
    stream: LogStream.LOG_STREAM_STDERR,
    timestamp: Timestamp.create({ seconds: 2 }),
  });
  t.deepEqual(logLine(message), { atMs: 2_000, isError: true, text: "red" });
  t.is(tailOf(null), 0);
  t.is(tailOf(100), -101);
});

test("a command is split as a shell does", (t) => {
  t.deepEqual(commandWords(`sh -c "a \\"b\\" c" 'd e'f g\\ h`), ["sh", "-c", `a "b" c`, "d ef", "g h"]);
  t.deepEqual(commandWords("  "), []);
});

test("addresses of the cluster's view lead back to it", (t) => {
  for (const hash of [
    "#/cluster",
    "#/cluster/new",
    "#/cluster/new-network",
    "#/cluster/service/a%2Fb",
    "#/cluster/task/t",
    "#/cluster/node/n",
  ])
    t.is(hashOf(routeOf(hash), null), hash);
  t.deepEqual(routeOf("#/cluster/unknown/x"), { view: "cluster", part: "overview" });
});

test("the page offers an action exactly to the roles that the server lets perform it", (t) => {
  const { methods } = ControlService;
  const paths: Readonly<Partial<Record<Action, string>>> = {
    createService: methods.CreateService.path,
    updateService: methods.UpdateService.path,
    removeService: methods.RemoveService.path,
    updateNode: methods.UpdateNode.path,
    createNetwork: methods.CreateNetwork.path,
    removeNetwork: methods.RemoveNetwork.path,
    openTerminal: TaskAccessService.methods.Send.path,
  };
  for (const [action, path] of Object.entries(paths))
    t.is(accessByPath.get(path), neededRoles[action as Action], action);
  // users.ts: to look needs `read-only`, every other action this.
  t.is(neededRoles.controlRollout, "operator");
  t.true(may("admin", "createService"));
  t.true(may("operator", "createService"));
  t.false(may("operator", "updateNode"));
  t.false(may("read-only", "createService"));
  t.false(may("", "createService"), "an unknown role");
});
