// Containers and tasks of Docker's Engine API: their number, which is kept until something changes, and their filters.
import test from "ava";
import type { Failure } from "../../edges/docker/failure.ts";
import { containerCounts, listContainers } from "../../edges/docker/objects/containers.ts";
import { listTasks } from "../../edges/docker/objects/tasks.ts";
import type { DockerRequest, Handler } from "../../edges/docker/request.ts";
import {
  Annotations,
  ContainerSpec,
  ContainerStatus,
  GenericRuntimeSpec,
  Network,
  NetworkAttachment,
  NetworkAttachmentSpec,
  NetworkSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { testManager, type TestManager } from "../support/manager.ts";

const task = (id: string, state: TaskState): Task =>
  Task.create({ id, spec: TaskSpec.create({}), status: TaskStatus.create({ state }) });

test("containers are counted anew after each change, and for each store", (t) => {
  const { seed, store } = testManager();
  seed("task", task("a", TaskState.RUNNING), task("b", TaskState.PENDING));
  t.deepEqual(containerCounts(store), { all: 1, running: 1 });
  t.is(containerCounts(store), containerCounts(store));
  seed("task", task("b", TaskState.RUNNING));
  t.deepEqual(containerCounts(store), { all: 2, running: 2 });
  seed("task", task("a", TaskState.COMPLETE));
  t.deepEqual(containerCounts(store), { all: 2, running: 1 });
  t.deepEqual(containerCounts(testManager().store), { all: 0, running: 0 });
});

/** The objects that a list answers with. */
async function listed(
  list: Handler,
  { store }: Pick<TestManager, "store">,
  filters: Readonly<Record<string, readonly string[]>>,
  version = "1.45",
): Promise<readonly Readonly<Record<string, unknown>>[]> {
  let text = "";
  const response = { writeHead: () => undefined, end: (rest: string) => (text += rest) };
  const calls = { unary: () => Promise.resolve({ tasks: [...store.all("task")] }) };
  const query = new URLSearchParams({ all: "1", filters: JSON.stringify(filters) });
  const backend = { store, clock: new SimClock() };
  const signal = new AbortController().signal;
  const request: unknown = { backend, calls, query, response, signal, version };
  await list(request as DockerRequest);
  return JSON.parse(text) as readonly Readonly<Record<string, unknown>>[];
}

/** Two containers, each on a network of its own. */
function twoContainers(): TestManager {
  const manager = testManager();
  for (const [slot, name] of ["web", "xweb"].entries()) {
    const annotations = Annotations.create({ name: `${name}-net` });
    const network = Network.create({ id: `net${slot}id`, spec: NetworkSpec.create({ annotations }) });
    const container = ContainerStatus.create({ containerId: `${slot}ab${slot}` });
    manager.seed(
      "task",
      Task.create({
        id: `t${slot}`,
        slot: 1,
        spec: TaskSpec.create({ container: ContainerSpec.create({ image: "bb:1" }) }),
        status: TaskStatus.create({ state: TaskState.RUNNING, container }),
        serviceAnnotations: Annotations.create({ name }),
        networks: [NetworkAttachment.create({ network })],
      }),
    );
  }
  return manager;
}

test("containers are filtered as by an engine", async (t) => {
  const manager = twoContainers();
  const ids = async (filters: Readonly<Record<string, readonly string[]>>): Promise<string> =>
    (await listed(listContainers, manager, filters)).map((each) => each["Id"]).join(" ");
  t.is(await ids({}), "0ab0 1ab1");
  t.is(await ids({ name: ["^web"] }), "0ab0", "a name without its slash");
  t.is(await ids({ name: ["^/web"] }), "0ab0");
  t.is(await ids({ name: ["web.1"] }), "0ab0 1ab1");
  t.is(await ids({ id: ["1a"] }), "1ab1");
  t.is(await ids({ id: ["ab"] }), "", "only the beginning of an id counts");
  t.is(await ids({ network: ["web-net"] }), "0ab0");
  t.is(await ids({ network: ["net1"] }), "1ab1", "a network by the beginning of its id");
  t.is(await ids({ network: ["et1"] }), "");
  t.is(await ids({ "is-task": ["true"] }), "0ab0 1ab1");
  t.is(await ids({ "is-task": ["0"] }), "");
  t.is(await ids({ ancestor: ["bb"] }), "0ab0 1ab1");
  t.is(await ids({ ancestor: ["b"] }), "");
});

test("values of a filter that no container can have are refused in the words of the version", async (t) => {
  const refusal = async (version: string, name: string, ...values: readonly string[]): Promise<string> => {
    const error = await t.throwsAsync<Failure>(listed(listContainers, twoContainers(), { [name]: values }, version));
    return `${error?.status} ${error?.message}`;
  };
  t.is(await refusal("1.45", "status", "odd"), "400 invalid filter 'status=odd'");
  t.is(await refusal("1.41", "status", "odd"), "400 Invalid filter 'status=odd'");
  t.is(
    await refusal("1.45", "exited", "odd"),
    `400 invalid filter 'exited=odd': strconv.Atoi: parsing "odd": invalid syntax`,
  );
  t.is(await refusal("1.41", "exited", "odd"), `500 strconv.Atoi: parsing "odd": invalid syntax`);
  t.is(await refusal("1.45", "is-task", "true", "false"), "400 invalid filter 'is-task=[true false]'");
  t.is(await refusal("1.45", "is-task"), "400 invalid filter 'is-task'");
  t.is(await refusal("1.41", "is-task", "1"), "400 Invalid filter 'is-task=[1]'");
});

test("tasks that stand for engines' own containers are listed only if their runtime is wanted", async (t) => {
  const manager = testManager();
  const [attachment, generic] = [NetworkAttachmentSpec.create({}), GenericRuntimeSpec.create({ kind: "exec" })];
  manager.seed(
    "task",
    Task.create({ id: "a", spec: TaskSpec.create({ attachment }) }),
    Task.create({ id: "b", spec: TaskSpec.create({ generic }) }),
  );
  const ids = async (filters: Readonly<Record<string, readonly string[]>>): Promise<string> =>
    (await listed(listTasks, manager, filters)).map((each) => each["ID"]).join(" ");
  t.is(await ids({}), "b");
  t.is(await ids({ runtime: ["attachment"] }), "a b", "the selection itself is Control's");
});
