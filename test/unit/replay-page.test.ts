// The page over a recording: its calls are answered from the file, and nothing can be changed.
import test from "ava";
import { recordedBackend } from "../../cli/replay/recorded-backend.ts";
import {
  ActorFeed,
  ActorSelection,
  ControlService,
  InspectionService,
  TimelineOverview,
  TimelineOverviewRequest,
  TimelineService,
  WatchActorsRequest,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { openRecording } from "../../runtime/recording/opened.ts";
import { madeFeeds } from "../fixtures/feed-history.ts";
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
    { instanceOf: RpcError, message: "cannot call RemoveService: this is a recording, not a cluster" },
  );
  t.is((refused as RpcError).code, Status.FAILED_PRECONDITION);
});
