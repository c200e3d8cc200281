import test from "ava";
import { createWatch, watchBufferBytesMax } from "../../actors/watch.ts";
import {
  Annotations,
  CreateSecretRequest,
  SecretSpec,
  SelectBy,
  Task,
  TaskState,
  Version,
  type WatchMessage,
  WatchRequest,
  WatchRequest_WatchEntry,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/rpc.ts";
import { createdService, spec, updateOf, workerNode, world } from "../support/control.ts";
import { call, collectedStream, refusalOf } from "../support/manager.ts";

function watching(kind: string, fields: Partial<WatchRequest_WatchEntry> = {}): WatchRequest {
  return WatchRequest.create({ entries: [WatchRequest_WatchEntry.create({ kind, action: 7, ...fields } as never)] });
}

test("a watch begins with an empty message and then tells each transaction with its version", async (t) => {
  const { control, env, store, seed } = world();
  const watch = createWatch(env).handlers;
  const stream = collectedStream<WatchMessage>();
  const gone = new AbortController();
  watch.Watch(WatchRequest.patch(watching("service"), { includeOldObject: true }), stream, call({}, gone.signal));
  t.deepEqual(
    stream.messages.map(({ events, version }) => [events.length, version]),
    [[0, null]],
  );
  const service = await createdService(control, spec("web"));
  seed("node", workerNode("n1"));
  await control.UpdateService(updateOf(service, { spec: spec("web", 2) }), call());
  t.is(stream.messages.length, 3);
  const last = stream.messages[2];
  t.is(last?.version?.index, store.version);
  t.is(last?.events[0]?.object?.service?.spec?.replicated?.replicas, 2);
  t.is(last?.events[0]?.oldObject?.service?.spec?.replicated?.replicas, 1);
  gone.abort();
  await createdService(control, spec("db"));
  t.is(stream.messages.length, 3);
});

test("a watch with selectors hears what fits or fitted, and never a secret's data", async (t) => {
  const { control, env, seed } = world();
  const watch = createWatch(env).handlers;
  const tasks = collectedStream<WatchMessage>();
  watch.Watch(
    watching("task", {
      filters: [SelectBy.create({ nodeId: "n1" }), SelectBy.create({ desiredState: TaskState.RUNNING })],
    }),
    tasks,
    call(),
  );
  const task = (desiredState: TaskState, nodeId: string) => Task.create({ id: "t1", nodeId, desiredState });
  seed("task", task(TaskState.RUNNING, ""));
  t.is(tasks.messages.length, 1);
  seed("task", task(TaskState.RUNNING, "n1"));
  seed("task", task(TaskState.SHUTDOWN, "n1"));
  seed("task", task(TaskState.REMOVE, "n1"));
  t.is(tasks.messages.length, 3);
  const secrets = collectedStream<WatchMessage>();
  watch.Watch(watching("secret"), secrets, call());
  const secretSpec = SecretSpec.create({ annotations: Annotations.create({ name: "pw" }), data: Uint8Array.of(1) });
  await control.CreateSecret(CreateSecretRequest.create({ spec: secretSpec }), call());
  t.is(secrets.messages[1]?.events[0]?.object?.secret?.spec?.data.length, 0);
});

test("a watch that cannot mean anything is refused", async (t) => {
  const { env, seed, store } = world();
  seed("node", workerNode("n1"));
  const watch = createWatch(env).handlers;
  const refusal = (request: WatchRequest) => refusalOf(() => watch.Watch(request, collectedStream(), call()));
  const one = SelectBy.create({ id: "a" });
  t.is((await refusal(watching("")))?.message, "no kind of object specified");
  t.regex((await refusal(watching("servise")))?.message ?? "", /unknown kind 'servise'/);
  t.is((await refusal(watching("task", { action: 0 })))?.message, "unrecognized action 0");
  t.is((await refusal(watching("task", { filters: [one, one] })))?.message, "conflicting filters specified");
  t.is(
    (await refusal(watching("node", { filters: [SelectBy.create({ serviceId: "a" })] })))?.code,
    Status.INVALID_ARGUMENT,
  );
  t.is(
    (await refusal(watching("task", { filters: [SelectBy.create({ referencedSecretId: "a" })] })))?.code,
    Status.INVALID_ARGUMENT,
  );
  const resumed = (index: number) => WatchRequest.patch(watching("node"), { resumeFrom: Version.create({ index }) });
  t.is((await refusal(resumed(store.version - 1)))?.code, Status.OUT_OF_RANGE);
  t.is((await refusal(resumed(store.version + 1)))?.code, Status.OUT_OF_RANGE);
  t.is(await refusal(resumed(store.version)), null);
});

test("a watcher that does not read is told to start over", (t) => {
  const { env, seed } = world();
  const stream = collectedStream<WatchMessage>();
  createWatch(env).handlers.Watch(watching("node"), stream, call());
  stream.buffered = watchBufferBytesMax + 1;
  seed("node", workerNode("n1"));
  t.is(stream.ended?.code, Status.RESOURCE_EXHAUSTED);
  seed("node", workerNode("n2"));
  t.is(stream.messages.length, 1);
});
