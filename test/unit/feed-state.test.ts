import test from "ava";
import { encodedSnapshotFeed, encodedStateIdentity, movedContext, movedFields } from "../../proto/feed-state.ts";
import { ActorFeed, ActorSnapshot, ActorState, ActorStatus, ActorStep, ArmedTimer } from "../../proto/gen/messages.ts";

const timer = (delay: string): ArmedTimer =>
  ArmedTimer.create({ delay, state: "serving.busy", armedAtMs: 1_700_000_000_000, dueAtMs: 1_700_000_030_000 });

const step = ActorStep.create({
  actor: "session/n1",
  machine: "session",
  number: 300,
  atMs: 1_700_000_000_123,
  event: "stream.broken",
  fields: "{}",
  states: ["link.down", "serving.busy"],
  status: ActorStatus.ACTOR_FAILED,
  transitions: ["a#b#0"],
  guards: ["isNew"],
  effects: ["report"],
  context: '{"name":"é"}',
  timers: [timer("graceMs"), timer("30000")],
  traceId: "a".repeat(32),
  spanId: "b".repeat(16),
  unexpected: true,
  source: "dispatcher",
  skipped: 3,
});

test("a step's encoded fields become those of the state after it, and a snapshot has them", (t) => {
  const identity = {
    actor: "session/n1",
    machine: "session",
    startedAtMs: 1_600_000_000_000,
    sinceMs: 1_700_000_000_123,
    steps: 300,
  };
  const { states, status, context, timers, event } = step;
  const bytes = ActorStep.encode(step);
  const encoded = Buffer.concat([encodedStateIdentity(identity), movedFields(bytes), movedContext(bytes)]);
  const state = ActorState.create({ ...identity, states, status, context, timers, event });
  t.deepEqual(ActorState.decode(encoded), state);
  const feed = ActorFeed.create({ process: "manager-m1", hostname: "host-1", sequence: 2, atMs: 5 });
  const snapshot = encodedSnapshotFeed(ActorFeed.encode(feed), {
    begins: true,
    ends: false,
    actors: [encoded, encoded],
  });
  t.deepEqual(
    ActorFeed.decode(snapshot),
    ActorFeed.patch(feed, { snapshot: ActorSnapshot.create({ begins: true, actors: [state, state] }) }),
  );
});

test("an actor without states, timers or context has none", (t) => {
  const bytes = ActorStep.encode(ActorStep.create({ actor: "a", machine: "m", number: 1 }));
  t.deepEqual(movedFields(bytes), new Uint8Array());
  t.deepEqual(movedContext(bytes), new Uint8Array());
});
