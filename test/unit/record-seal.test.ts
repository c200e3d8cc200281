// A whole recording, made of the parts that processes keep: with a head and a signed end.
import test from "ava";
import { sealing } from "../../actors/inspection/record.ts";
import { ActorSelection, Cluster, RecentActorsRequest, RecordingEnd, RecordingPart } from "../../proto/gen/messages.ts";
import type { Sink } from "../../runtime/ports/rpc.ts";
import { openRecording } from "../../runtime/recording/opened.ts";
import { madeFeeds } from "../fixtures/feed-history.ts";
import { testManager } from "../support/manager.ts";
import { createSigner, feedParts, fileOf, inOrder, recordedCluster } from "../support/recordings.ts";

function heard() {
  const parts: RecordingPart[] = [];
  let ends = 0;
  const sink: Sink<RecordingPart> = {
    write: (part) => parts.push(part),
    end: () => (ends += 1),
    bufferedBytes: () => 7,
  };
  return { parts, sink, ends: () => ends };
}

test("the parts of all processes become a recording that this manager has signed", async (t) => {
  const { env, seed } = testManager("m1");
  seed("cluster", Cluster.create({ id: recordedCluster }));
  const signer = await createSigner();
  const { ends, parts, sink } = heard();
  const selection = ActorSelection.create({ processes: ["manager-m0"] });
  const recording = sealing(env, RecentActorsRequest.create({ selection, sinceMs: 60_000 }), sink, () => signer);
  t.is(parts.length, 0, "nothing is sent before the request is accepted");
  const now = env.clock.now();
  for (const part of feedParts(madeFeeds({ processes: 1, actors: 3, steps: 30, fromMs: now, toMs: now + 100 })))
    recording.write(part);
  recording.write(RecordingPart.create({ end: RecordingEnd.create({ missing: ["node-n1: it is off"] }) }));
  recording.end();
  t.is(ends(), 1);
  t.is(recording.bufferedBytes(), 7);
  const file = await fileOf(parts.map((part) => RecordingPart.encode(part)));
  const opened = await openRecording(inOrder([file]), { isForced: false });
  t.like(opened.seal, { kind: "signed", managerId: "m1", clusterId: recordedCluster });
  t.like(opened.head, { clusterId: recordedCluster, fromMs: now - 60_000, toMs: now, processes: ["manager-m0"] });
  t.deepEqual(opened.missing, ["node-n1: it is off"]);
  t.is(opened.index.stepsTotal, 30);
});

test("a manager without a certificate makes a recording without a signature", async (t) => {
  const { parts, sink } = heard();
  const recording = sealing(testManager("m1").env, RecentActorsRequest.create(), sink, () => null);
  recording.write(RecordingPart.create({ end: RecordingEnd.create() }));
  const opened = await openRecording(inOrder([await fileOf(parts.map((part) => RecordingPart.encode(part)))]), {
    isForced: false,
  });
  t.is(opened.seal.kind, "unsigned");
});
