// The page over a recording: its calls are answered from the file, and nothing can be changed.
import test from "ava";
import { recordedBackend } from "../../cli/replay/recorded-backend.ts";
import {
  ActorFeed,
  ActorSelection,
  Annotations,
  ControlRolloutRequest,
  ControlService,
  InspectionService,
  ListServicesRequest,
  ListTasksRequest,
  LogsService,
  Node,
  OperatorService,
  RecordedTransaction,
  RecordingPart,
  Service,
  ServiceSpec,
  Task,
  TaskAccessService,
  TaskSpec,
  TaskState,
  TaskStatus,
  TimelineOverview,
  TimelineOverviewRequest,
  TimelineService,
  WatchActorsRequest,
  WatchMessage,
  WhyRequest,
} from "../../proto/gen/messages.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import { timestampOf } from "../../proto/time.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { openRecording } from "../../runtime/recording/opened.ts";
import { madeFeeds } from "../fixtures/feed-history.ts";
import { rangeWorld } from "../support/log-ranges.ts";
import { feedParts, fileOf, headPart, inOrder, sealedParts } from "../support/recordings.ts";

const toMs = 1_700_000_000_000;

async function backend() {
  const feeds = madeFeeds({ processes: 2, actors: 10, steps: 100, fromMs: toMs - 1_000, toMs });
  const file = await fileOf(sealedParts([headPart(), ...feedParts(feeds)], null));
  return recordedBackend(await openRecording(inOrder([file]), { isForced: false }));
}

test("the actors of the end are shown, until the page leaves", async (t) => {
  const { call } = await backend();
  const leaving = new AbortController();
  const messages: ActorFeed[] = [];
  const { promise: second, resolve } = Promise.withResolvers<void>();
  const watching = call(
    InspectionService.methods.Watch.path,
    WatchActorsRequest.encode(WatchActorsRequest.create({ selection: ActorSelection.create() })),
    {
      write(message) {
        messages.push(ActorFeed.decode(message));
        if (messages.length === 2) resolve();
        return null;
      },
    },
    { signal: leaving.signal, traceparent: "" },
  );
  await second;
  t.deepEqual(
    messages.map(({ process, snapshot }) => [process, snapshot?.actors.length]),
    [
      ["manager-m0", 10],
      ["manager-m1", 10],
    ],
  );
  leaving.abort();
  await t.notThrowsAsync(watching);
});

test("the time line is answered from the recording, and every other call is refused", async (t) => {
  const { call } = await backend();
  const context = { signal: new AbortController().signal, traceparent: "" };
  const messages: Uint8Array[] = [];
  const write = (message: Uint8Array): null => (messages.push(message), null);
  const request = TimelineOverviewRequest.encode(TimelineOverviewRequest.create({ buckets: 1 }));
  await call(TimelineService.methods.Overview.path, request, { write }, context);
  t.like(TimelineOverview.decode(messages[0] as Uint8Array), { stepsTotal: 100, isRecording: true, toMs });
  const refused = await t.throwsAsync(
    call(ControlService.methods.RemoveService.path, new Uint8Array(), { write }, context),
    { instanceOf: RpcError, message: "cannot call RemoveService: this is a recording, which cannot be changed" },
  );
  t.is((refused as RpcError).code, Status.FAILED_PRECONDITION);
});

const serviceNamed = (name: string): Service =>
  Service.create({
    id: "s1",
    spec: ServiceSpec.create({ annotations: Annotations.create({ name }), task: TaskSpec.create() }),
  });
const taskIn = (state: TaskState, err = ""): Task =>
  Task.create({
    id: "t1",
    serviceId: "s1",
    slot: 1,
    nodeId: "n1",
    status: TaskStatus.create({ state, err }),
    desiredState: TaskState.RUNNING,
    serviceAnnotations: Annotations.create({ name: "web" }),
  });

/** A service that is created, whose task runs, and that is renamed and removed: a second apart. */
async function recordedService(
  change: (parts: readonly RecordingPart[]) => readonly RecordingPart[] = (parts) => parts,
  isForced = false,
) {
  const { manager, record, wait } = rangeWorld();
  const { clock, drop, seed } = manager;
  const startMs = clock.now();
  seed("node", Node.create({ id: "n1" }));
  await wait(1_000);
  const acts = [
    () => seed("service", serviceNamed("web")),
    () => seed("task", taskIn(TaskState.PENDING, "no suitable node")),
    () => seed("task", taskIn(TaskState.RUNNING)),
    () => seed("service", serviceNamed("shop")),
    () => drop("task", "t1"),
    () => drop("service", "s1"),
  ];
  const times: number[] = [];
  for (const act of acts) {
    act();
    times.push(clock.now());
    await wait(1_000);
  }
  const { missing, parts } = await record(startMs);
  const encoded = sealedParts([headPart(), ...change(parts)], null, missing);
  const recording = await openRecording(inOrder([await fileOf(encoded)]), { isForced });
  const { call } = recordedBackend(recording);
  const context = { signal: new AbortController().signal, traceparent: "" };
  async function ask<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    fields: Partial<Request>,
  ): Promise<Response> {
    const messages: Uint8Array[] = [];
    const write = (message: Uint8Array): null => (messages.push(message), null);
    await call(method.path, method.request.encode(method.request.create(fields)), { write }, context);
    return method.response.decode(messages[0] as Uint8Array);
  }
  async function at<Request, Response>(
    atMs: number,
    method: MethodDescriptor<Request, Response>,
    request: Request,
  ): Promise<Response> {
    const wrapped = { time: timestampOf(atMs), method: method.path, request: method.request.encode(request) };
    return method.response.decode((await ask(OperatorService.methods.ReadAt, wrapped)).response);
  }
  return { startMs, times, ask, at };
}

test("the objects of each moment are read as a manager reads those of its past", async (t) => {
  const { at, startMs, times } = await recordedService();
  const { ListServices, ListTasks, RemoveService } = ControlService.methods;
  const namesAt = async (atMs: number): Promise<readonly string[]> =>
    (await at(atMs, ListServices, ListServicesRequest.create())).services.map(
      ({ spec }) => spec?.annotations?.name ?? "",
    );
  const stateAt = async (atMs: number): Promise<readonly (number | undefined)[]> =>
    (await at(atMs, ListTasks, ListTasksRequest.create())).tasks.map(({ status }) => status?.state);
  const [created, pending, running, renamed, ended, removed] = times as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  // Forth and back.
  for (let round = 0; round < 2; round += 1) {
    t.deepEqual(await namesAt(created - 1), []);
    t.deepEqual(await namesAt(created), ["web"]);
    t.deepEqual(await namesAt(renamed - 1), ["web"]);
    t.deepEqual(await namesAt(renamed), ["shop"]);
    t.deepEqual(await namesAt(removed), []);
    t.deepEqual(await stateAt(created), []);
    t.deepEqual(await stateAt(pending), [TaskState.PENDING]);
    t.deepEqual(await stateAt(running), [TaskState.RUNNING]);
    t.deepEqual(await stateAt(ended), []);
  }
  const why = await at(pending, OperatorService.methods.Why, WhyRequest.create({ subject: "t1" }));
  t.deepEqual(why.reasons[0]?.tried, ["no suitable node"]);
  const rollout = await at(
    running,
    OperatorService.methods.ControlRollout,
    ControlRolloutRequest.create({ service: "s1" }),
  );
  t.is(rollout.phase, "none");
  const early = await t.throwsAsync(namesAt(startMs - 1), { instanceOf: RpcError, message: /^the recording has / });
  t.is((early as RpcError).code, Status.OUT_OF_RANGE);
  await t.throwsAsync(at(running, RemoveService, RemoveService.request.create()), { message: /it is not read-only/ });
});

test("the newest changes up to a moment have the objects before, oldest first", async (t) => {
  const { ask, times } = await recordedService();
  const changesAt = async (atMs: number, limit: number): Promise<readonly string[]> => {
    const { changes } = await ask(TimelineService.methods.Changes, { atMs, limit });
    return changes.flatMap(({ atMs: writtenMs, message }) =>
      WatchMessage.decode(message).events.map(({ action, object, oldObject }) => {
        const [now, before] = [object, oldObject].map(
          (each) => each?.service?.spec?.annotations?.name ?? each?.task?.status?.state ?? "",
        );
        return `${times.indexOf(writtenMs)}: ${action} ${before} → ${now}`;
      }),
    );
  };
  t.deepEqual(await changesAt(times[3] ?? 0, 3), ["1: 1  → 64", "2: 2 64 → 512", "3: 2 web → shop"]);
  t.deepEqual(await changesAt(times[0] ?? 0, 1), ["0: 1  → web"]);
  t.is((await changesAt(times[5] ?? 0, 1_000)).length, 6, "the node is in the base");
  for (const limit of [0, 5_001])
    await t.throwsAsync(changesAt(times[0] ?? 0, limit), { message: `invalid limit ${limit}: expected 1 to 5000` });
});

test("a recording without objects says why, and what a recording never has is refused with a sentence", async (t) => {
  const old = await recordedService(() => []);
  const { ListServices } = ControlService.methods;
  const error = await t.throwsAsync(old.at(old.startMs, ListServices, ListServicesRequest.create()), {
    instanceOf: RpcError,
    message: "this recording has no cluster objects: an earlier version of Muster made it",
  });
  t.is((error as RpcError).code, Status.FAILED_PRECONDITION);
  const nonsense = Buffer.from("nonsense");
  const damaged = await recordedService(
    (parts) =>
      parts.map((part) =>
        part.transaction?.base === true
          ? RecordingPart.create({ transaction: RecordedTransaction.patch(part.transaction, { record: nonsense }) })
          : part,
      ),
    true,
  );
  await t.throwsAsync(damaged.at(damaged.startMs, ListServices, ListServicesRequest.create()), {
    message: /^this recording has no cluster objects: it is damaged: its range of the log cannot be read: /,
  });
  const { ask } = await recordedService();
  await t.throwsAsync(ask(LogsService.methods.SubscribeLogs, {}), {
    message: "a recording does not have the output of tasks",
  });
  await t.throwsAsync(ask(TaskAccessService.methods.Call, {}), { message: "no task runs in a recording" });
});
