// The feed of actors in the protocol of Stately's inspector, read with the receiver of @statelyai/inspect.
import test, { type ExecutionContext } from "ava";
import { once } from "node:events";
import { createWebSocketReceiver, type StatelyInspectionEvent } from "@statelyai/inspect";
import { createMachine } from "xstate";
import { WebSocketServer } from "ws";
import { StatelySender, statelyMessages } from "../../cli/inspect/stately.ts";
import { connectToStately, inspectorUrl } from "../../cli/inspect/stately-link.ts";
import { valueOf, type StatelyMessage } from "../../cli/inspect/stately-messages.ts";
import { Actors } from "../../proto/feed/actors.ts";
import { ActorFeed, ActorSnapshot, ActorState, ActorStatus, ActorStep } from "../../proto/gen/messages.ts";
import { actor, inspectedManager, snapshot, stepOf } from "../support/inspection.ts";
import { patient } from "../support/slowness.ts";

interface Relay {
  readonly url: string;
  /** All messages that the receiver has read. */
  readonly received: StatelyInspectionEvent[];
  /** Waits for this many. */
  count(messages: number): Promise<void>;
  /** Closes the connections as an inspector that is shut down. */
  stop(): void;
}

/** The server of `@statelyai/inspect`, which sends each message to all others, with a receiver of that package behind it. */
async function relay(t: ExecutionContext): Promise<Relay> {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  server.on("connection", (socket) => {
    socket.on("message", (data: Buffer) => {
      for (const other of server.clients) if (other !== socket) other.send(data.toString());
    });
  });
  await once(server, "listening");
  const url = `ws://127.0.0.1:${(server.address() as { port: number }).port}/`;
  const received: StatelyInspectionEvent[] = [];
  let onMore: () => void = () => undefined;
  const connected = once(server, "connection");
  const { unsubscribe } = createWebSocketReceiver({ server: url }).subscribe((event) => {
    received.push(event);
    onMore();
  });
  await connected;
  const stop = (): void => {
    for (const client of server.clients) client.close(1001, "shutting down");
    server.close();
  };
  t.teardown(() => {
    unsubscribe();
    stop();
  });
  return {
    url,
    received,
    stop,
    count: (messages) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`${received.length} of ${messages}`)), patient(5_000));
        onMore = () => {
          if (received.length < messages) return;
          clearTimeout(timer);
          resolve();
        };
        onMore();
      }),
  };
}

const process = "manager-m1";
const session = ActorState.create({
  actor: "session/n1",
  machine: "session",
  states: ["serving.connected"],
  context: '{"node":"n1"}',
});

/** The news of feed messages, as `muster inspect` gets them. */
function* newsOf(actors: Actors, ...feeds: readonly ActorFeed[]) {
  for (const feed of feeds) {
    actors.apply(feed, 1_000);
    const known = actors.processes.get(feed.process);
    if (known === undefined) continue;
    if (feed.snapshot?.ends === true)
      for (const actor of known.actors.values()) yield { kind: "actor", process: known, actor } as const;
    for (const step of feed.steps) yield { kind: "step", process: known, step } as const;
    for (const actor of feed.ended) yield { kind: "ended", process: known, actor } as const;
  }
}

test("an actor is registered with its chart, and its steps arrive as events and snapshots", async (t) => {
  const { url, received, count } = await relay(t);
  const link = await connectToStately(inspectorUrl(url));
  const stately = await statelyMessages();
  const actors = new Actors();
  const feeds = [
    ActorFeed.create({
      process,
      hostname: "alpha",
      sequence: 1,
      snapshot: ActorSnapshot.create({ begins: true, ends: true, actors: [session] }),
    }),
    ActorFeed.create({
      process,
      sequence: 2,
      steps: [
        ActorStep.create({
          actor: "session/n1",
          machine: "session",
          number: 1,
          atMs: 1_500,
          event: "stream.broken",
          fields: '{"reason":"reset"}',
          source: "dispatcher/m1",
          states: ["serving.disconnected"],
        }),
        ActorStep.create({
          actor: "task/t1",
          machine: "unknownHere",
          number: 1,
          event: "xstate.init",
          states: ["a.x", "b", "c.y.z"],
          status: ActorStatus.ACTOR_DONE,
        }),
      ],
    }),
    ActorFeed.create({ process, sequence: 3, ended: ["session/n1"] }),
  ];
  for (const news of newsOf(actors, ...feeds))
    for (const message of stately.of(news, 2_000)) t.true(link.send(message));
  await count(8);

  const [parent, registered, event, moved, other, , done, stopped] = received as unknown as readonly [
    StatelyInspectionEvent,
    StatelyInspectionEvent & { readonly definition: string },
    ...StatelyInspectionEvent[],
  ];
  t.like(parent, { type: "@xstate.actor", sessionId: process, name: "alpha (manager-m1)", rootId: process });
  t.like(registered, {
    type: "@xstate.actor",
    name: "session/n1",
    sessionId: "manager-m1/session/n1",
    parentId: process,
    rootId: process,
    createdAt: "2000",
    _version: "0.7.2",
    snapshot: { status: "active", value: { serving: "connected" }, context: { node: "n1" } },
  });
  const machine = createMachine(JSON.parse(registered.definition) as never);
  t.is(machine.id, "session");
  t.notThrows(() => machine.resolveState({ value: { serving: "connected" }, context: {} } as never));
  const broken = { type: "stream.broken", reason: "reset" };
  t.like(event, {
    type: "@xstate.event",
    sessionId: "manager-m1/session/n1",
    sourceId: "manager-m1/dispatcher/m1",
    event: broken,
    createdAt: "1500",
  });
  t.like(moved, {
    type: "@xstate.snapshot",
    event: broken,
    // The step has no context: it is unchanged.
    snapshot: { status: "active", value: { serving: "disconnected" }, context: { node: "n1" } },
  });
  t.like(other, { type: "@xstate.actor", name: "task/t1", sessionId: "manager-m1/task/t1" });
  t.false("definition" in (other ?? {}));
  t.like(done, {
    type: "@xstate.snapshot",
    snapshot: { status: "done", value: { a: "x", b: {}, c: { y: "z" } } },
  });
  t.like(stopped, { type: "@xstate.snapshot", sessionId: "manager-m1/session/n1", snapshot: { status: "stopped" } });
  t.is(received.length, 8);
  link.close();
});

test("an actor that is sent again is not registered again", async (t) => {
  const stately = await statelyMessages();
  const actors = new Actors();
  const again = (sequence: number): ActorFeed =>
    ActorFeed.create({
      process,
      sequence,
      snapshot: ActorSnapshot.create({ begins: true, ends: true, actors: [session] }),
    });
  const types = [...newsOf(actors, again(1), again(2))].flatMap((news) =>
    [...stately.of(news, 0)].map(({ type, sessionId }) => `${type} ${sessionId}`),
  );
  t.deepEqual(types, [
    "@xstate.actor manager-m1",
    "@xstate.actor manager-m1/session/n1",
    "@xstate.snapshot manager-m1/session/n1",
  ]);
});

test("while the inspector is too slow, messages are left out, and afterwards it gets the present states", async (t) => {
  const sent: StatelyMessage[] = [];
  const remarks: string[] = [];
  const link = {
    isFull: false,
    send(message: StatelyMessage): boolean {
      if (!link.isFull) sent.push(message);
      return !link.isFull;
    },
  };
  const actors = new Actors();
  const shell = { now: () => 0, remark: (text: string) => remarks.push(text) };
  const sender = new StatelySender(shell, actors, await statelyMessages(), link);
  const step = (id: string, state: string, number = 1): ActorStep =>
    stepOf(id, "session", number, { event: "heartbeat", states: [state] });
  const other = actor("session/n2", "session", ["registering"]);
  const feeds = [
    snapshot(process, [actor("session/n1", "session", ["registering"]), other], { sequence: 1 }),
    ActorFeed.create({ process, sequence: 2, steps: [step("session/n1", "suspect"), step("session/n3", "suspect")] }),
    ActorFeed.create({ process, sequence: 3, steps: [step("session/n1", "stopped", 2)], ended: ["session/n2"] }),
  ];
  for (const [at, feed] of feeds.entries()) {
    link.isFull = at > 0;
    for (const news of newsOf(actors, feed)) sender.send(news);
  }
  sender.catchUp();
  t.is(sent.length, 3);
  link.isFull = false;
  sender.catchUp();
  sender.catchUp();
  t.deepEqual(remarks, ["note: the inspector was too slow: 8 messages were left out"]);
  t.deepEqual(
    sent
      .slice(3)
      .map((message) => [
        message.type,
        message.sessionId,
        "snapshot" in message ? (message.snapshot.value ?? message.snapshot.status) : "",
      ]),
    [
      ["@xstate.actor", "manager-m1/session/n1", "stopped"],
      ["@xstate.actor", "manager-m1/session/n3", "suspect"],
      ["@xstate.snapshot", "manager-m1/session/n2", "stopped"],
    ],
  );
});

test("states become XState's state values", (t) => {
  t.deepEqual(valueOf(["idle"]), "idle");
  t.deepEqual(valueOf(["up.running"]), { up: "running" });
  t.deepEqual(valueOf(["link.up", "work.busy.late"]), { link: "up", work: { busy: "late" } });
  t.deepEqual(valueOf([]), {});
});

test("an address without an inspector, or one that closes, is reported", async (t) => {
  t.throws(() => inspectorUrl("localhost:8080"), {
    message: 'invalid inspector address "localhost:8080": expected ws://HOST:PORT or wss://HOST',
  });
  const { url, stop } = await relay(t);
  const link = await connectToStately(inspectorUrl(url));
  stop();
  t.is(await link.closed, "shutting down");
  await t.throwsAsync(connectToStately(inspectorUrl(url)), {
    message:
      /^cannot connect to Stately's inspector at ws:.*: nothing accepts WebSocket connections there; start one with /,
  });
});

test.serial("muster inspect --stately sends chosen actors and their steps, until the inspector closes", async (t) => {
  const { url, received, count, stop } = await relay(t);
  const inspected = await inspectedManager(t);
  inspected.scene.feeds = [
    snapshot(process, [
      actor("session/n1", "session", ["serving.connected"]),
      actor("scheduler/m1", "scheduler", ["later.none", "proposals.none", "rounds.resting"]),
    ]),
  ];
  const { done } = inspected.start("inspect", "--stately", url, "session");
  await count(2);
  const step = { atMs: 5, event: "stream.broken", states: ["serving.disconnected"] };
  inspected.send(
    ActorFeed.create({ process, steps: [stepOf("scheduler/m1", "scheduler", 4, { event: "tick", states: [] })] }),
    ActorFeed.create({ process, steps: [stepOf("session/n1", "session", 8, step)] }),
  );
  await count(4);
  t.deepEqual(
    received.map(({ type, sessionId }) => `${type} ${sessionId}`),
    [
      "@xstate.actor manager-m1",
      "@xstate.actor manager-m1/session/n1",
      "@xstate.event manager-m1/session/n1",
      "@xstate.snapshot manager-m1/session/n1",
    ],
  );
  stop();
  const { status, remarks } = await done;
  t.is(status, 1);
  t.regex(remarks.join("\n"), /Stately's inspector closed the connection: shutting down/);
});

test.serial("muster inspect --stately needs an inspector, and goes with no other output", async (t) => {
  const { muster, ...inspected } = await inspectedManager(t);
  inspected.scene.feeds = [snapshot(process, [actor("session/n1", "session", ["serving.connected"])])];
  const unreachable = await muster("inspect", "--stately", "ws://127.0.0.1:1/");
  t.is(unreachable.status, 1);
  t.regex(
    unreachable.remarks.join("\n"),
    /^muster: cannot connect to Stately's inspector at ws:\/\/127\.0\.0\.1:1\/: /m,
  );
  t.is((await muster("inspect", "--stately", "http://127.0.0.1/")).status, 125);
  t.is((await muster("inspect", "--stately", "ws://127.0.0.1:1/", "-f")).status, 125);
});
