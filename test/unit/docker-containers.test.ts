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
  Meta,
  Mount,
  Mount_Type as MountType,
  Network,
  NetworkAttachment,
  NetworkAttachmentSpec,
  NetworkSpec,
  PortConfig,
  PortStatus,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  Timestamp,
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
  { store, tasks }: Pick<TestManager, "store"> & { readonly tasks?: readonly Task[] },
  filters: Readonly<Record<string, readonly string[]>>,
  version = "1.45",
): Promise<readonly Readonly<Record<string, unknown>>[]> {
  let text = "";
  const response = { writeHead: () => undefined, end: (rest: string) => (text += rest) };
  const calls = { unary: () => Promise.resolve({ tasks: tasks ?? [...store.all("task")] }) };
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

test("containers are filtered by age, ports and mounts", async (t) => {
  const tasks = ["old", "mid", "new"].map((name, at) =>
    Task.create({
      id: name,
      slot: 1,
      meta: Meta.create({ createdAt: Timestamp.create({ seconds: 100, nanos: at }) }),
      spec: TaskSpec.create({
        container: ContainerSpec.create({
          mounts: [
            Mount.create({ type: MountType.VOLUME, source: `${name}-data`, target: "/data" }),
            Mount.create({ type: MountType.BIND, source: "/srv", target: `/${name}` }),
          ],
        }),
      }),
      status: TaskStatus.create({
        state: TaskState.RUNNING,
        portStatus: PortStatus.create({
          ports: [PortConfig.create({ targetPort: 80, publishedPort: 8_000 + at, protocol: at === 2 ? 1 : 0 })],
        }),
      }),
      serviceAnnotations: Annotations.create({ name }),
    }),
  );
  const manager = { store: testManager().store, tasks };
  const names = async (filters: Readonly<Record<string, readonly string[]>>): Promise<string> =>
    (await listed(listContainers, manager, filters))
      .map(({ Names }) => (Names as readonly string[])[0]?.split(/[/.]/)[1])
      .join(" ");
  t.is(await names({}), "new mid old");
  t.is(await names({ before: ["mid.1.mid"] }), "old");
  t.is(await names({ since: ["/mid.1.mid"] }), "new");
  t.is(await names({ before: ["new"], since: ["old"] }), "mid");
  t.is(await names({ publish: ["8001"] }), "mid");
  t.is(await names({ publish: ["8000-8002/tcp"] }), "mid old");
  t.is(await names({ publish: ["8002/udp", "8000"] }), "new old");
  t.is(await names({ publish: ["80"] }), "", "not the container's port");
  t.is(await names({ volume: ["mid-data"] }), "mid");
  t.is(await names({ volume: ["/data"] }), "new mid old");
  t.is(await names({ volume: ["/srv"], publish: ["8000"] }), "old");
  t.is(await names({ volume: ["data"] }), "");
  const refusal = async (name: string, value: string): Promise<string> => {
    const error = await t.throwsAsync<Failure>(listed(listContainers, manager, { [name]: [value] }));
    return `${error?.status} ${error?.message}`;
  };
  t.is(await refusal("before", "absent"), "404 No such container: absent");
  t.is(
    await refusal("health", "healthy"),
    `501 the filter "health" is known to the engine of a node only: run 'docker ps' there`,
  );
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
