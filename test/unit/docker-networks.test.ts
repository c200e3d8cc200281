// Networks of Docker's Engine API: a removal waits for tasks that are stopping.
import test from "ava";
import { removeNetwork } from "../../edges/docker/objects/networks.ts";
import type { DockerRequest } from "../../edges/docker/request.ts";
import {
  Annotations,
  ControlService,
  Network,
  NetworkAttachment,
  NetworkAttachmentConfig,
  NetworkSpec,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { testManager } from "../support/manager.ts";

const network = Network.create({
  id: "net1",
  spec: NetworkSpec.create({ annotations: Annotations.create({ name: "net" }) }),
});
const networks = [NetworkAttachmentConfig.create({ target: "net1" })];
const task = (state: TaskState): Task =>
  Task.create({
    id: "task1",
    serviceId: "service1",
    desiredState: TaskState.SHUTDOWN,
    status: TaskStatus.create({ state }),
    networks: [NetworkAttachment.create({ network })],
  });
const service = (spec: Partial<ServiceSpec>): Service =>
  Service.create({ id: "service1", spec: ServiceSpec.create(spec) });

/** A removal that has begun, while a task that will stop still runs. */
async function removing(...services: readonly Service[]) {
  const manager = testManager();
  const { clock, env, seed, store } = manager;
  seed("task", task(TaskState.RUNNING));
  if (services.length > 0) seed("service", ...services);
  const client = new AbortController();
  let removals = 0;
  const unary = async ({ path }: { readonly path: string }): Promise<object> => {
    if (path === ControlService.methods.ListNetworks.path) return { networks: [network] };
    removals += 1;
    return {};
  };
  const calls = { demand: () => undefined, unary } as unknown as DockerRequest["calls"];
  const backend = { clock, store, log: env.telemetry.log } as unknown as DockerRequest["backend"];
  const request = { backend, calls, name: "net", signal: client.signal } as unknown as DockerRequest;
  let isAnswered = false;
  void Promise.resolve(removeNetwork(request)).then(() => (isAnswered = true));
  const after = async (ms: number): Promise<readonly [removals: number, isAnswered: boolean]> => {
    await clock.run({ untilMs: clock.now() + ms });
    return [removals, isAnswered];
  };
  await after(1);
  return { ...manager, after, client };
}

test("a removal waits for the end of the network's tasks, and not for ever", async (t) => {
  const { after, seed } = await removing();
  t.deepEqual(await after(9_000), [0, false]);
  seed("task", task(TaskState.SHUTDOWN));
  t.deepEqual(await after(1), [1, true]);
  const { after: afterMore } = await removing();
  t.deepEqual(await afterMore(29_000), [0, false]);
  t.deepEqual(await afterMore(2_000), [1, true]);
});

test("a removal does not wait while a service would keep the network anyway", async (t) => {
  for (const used of [service({ networks }), service({ task: TaskSpec.create({ networks }) })]) {
    const { after } = await removing(used);
    t.deepEqual(await after(1), [1, true]);
  }
  const { after } = await removing(service({}));
  t.deepEqual(await after(1), [0, false], "the service has left the network");
});

test("a client that leaves while its removal waits removes nothing", async (t) => {
  const { after, client } = await removing();
  client.abort();
  t.deepEqual(await after(60_000), [0, true]);
});
