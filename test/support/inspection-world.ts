/** Two managers on one bus, each with a feed that a test moves by hand, and agents that a test connects to either. */
import { AgentInspection } from "../../actors/agent/inspection.ts";
import { createInspection } from "../../actors/inspection/inspection.ts";
import type { KeptRecording } from "../../actors/inspection/kept-recording.ts";
import type { ProcessFeed } from "../../actors/inspection/process-feed.ts";
import { createNodeCalls, type NodeCalls } from "../../actors/node-calls.ts";
import {
  ActorSelection,
  ListenTaskCallsRequest,
  Manager,
  Node,
  RecentActorsRequest,
  type RecordingPart,
  Session,
  WatchActorsRequest,
  type ActorFeed,
  type InspectionAnswer,
  type InspectionAnswerResponse,
  type NodeQuestion,
} from "../../proto/gen/messages.ts";
import type { RpcChannel, SendingCall } from "../../runtime/ports/rpc.ts";
import type { RecordingSigner } from "../../runtime/recording/seal.ts";
import { FakeFeed } from "./fake-feed.ts";
import { viewOf } from "./feed-view.ts";
import { call, collectedStream, testManager } from "./manager.ts";
import { sharedBus } from "./shared-bus.ts";

const ids = ["m1", "m2"];

/** A client stream of answers to the manager, over which a test may cut. */
export function answersTo(
  manager: NodeCalls,
  nodeId: string,
  onEnd = (): void => {},
): SendingCall<InspectionAnswer, InspectionAnswerResponse> {
  const waiting: InspectionAnswer[] = [];
  let isOver = false;
  let wake = (): void => {};
  async function* read(): AsyncGenerator<InspectionAnswer> {
    for (;;) {
      const next = waiting.shift();
      if (next !== undefined) yield next;
      else if (isOver) return;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  }
  const peer = { identity: { nodeId, role: "swarm-worker", organization: "c" }, local: false } as const;
  const response = Promise.resolve(manager.handlers.Inspect(read(), call(peer)));
  let isCancelled = false;
  const ended = (): void => {
    if (!isCancelled) onEnd();
  };
  response.then(ended, ended);
  const over = (): void => {
    isOver = true;
    wake();
  };
  return {
    write: (answer) => {
      waiting.push(answer);
      wake();
    },
    finish: () => {
      over();
      return response;
    },
    cancel: () => {
      isCancelled = true;
      over();
    },
    bufferedBytes: () => 0,
  };
}

/** `kept`: what processes keep of their last minutes, by process. */
export function inspectionWorld(kept: Readonly<Record<string, KeptRecording>> = {}) {
  const bus = sharedBus();
  const managers = ids.map((id) => {
    const { clock, drop, env, seed } = testManager(id);
    seed("manager", ...ids.map((each) => Manager.create({ id: each, alive: true })));
    seed("node", Node.create({ id: "n1" }), Node.create({ id: "stock" }));
    const nodes = createNodeCalls();
    const feed = new FakeFeed(`manager-${id}`);
    feed.states.set(`ledger/${id}`, "following");
    const start = (life: string, signer?: () => RecordingSigner | null) =>
      createInspection(
        { ...env, bus, random: env.random.fork(life) },
        feed,
        nodes,
        kept[`manager-${id}`] ?? null,
        signer,
      );
    return { id, clock, drop, seed, nodes, feed, start, service: start("first life") };
  });
  const [one, two] = managers as [(typeof managers)[0], (typeof managers)[0]];
  const agentFeed = new FakeFeed("node-forged");
  agentFeed.states.set("task/t1", "running");

  /** Connects the agent of a node to a manager; the result cuts it off. */
  function connect(to: typeof one, { nodeId = "n1", hears = true, feed = agentFeed as ProcessFeed | null } = {}) {
    for (const { seed } of managers) seed("session", Session.create({ id: nodeId, managerId: to.id }));
    const agent = new AgentInspection(
      { clock: to.clock, telemetry: testManager().env.telemetry },
      () => feed,
      kept[`node-${nodeId}`] ?? null,
    );
    const channel = {
      clientStream: (_method: unknown, onEnd?: () => void) => answersTo(to.nodes, nodeId, onEnd),
    } as unknown as RpcChannel;
    const leaving = new AbortController();
    const questions: NodeQuestion[] = [];
    const sink = {
      ...collectedStream<NodeQuestion>(),
      write: (question: NodeQuestion) => {
        questions.push(question);
        if (hears) agent.hear(channel, question);
      },
    };
    const peer = { identity: { nodeId, role: "swarm-worker", organization: "c" }, local: false } as const;
    to.nodes.handlers.Listen(ListenTaskCallsRequest.create(), sink, call(peer, leaving.signal));
    return {
      questions,
      cut: () => {
        leaving.abort();
        agent.detach();
      },
    };
  }

  function watch(at: typeof one, selection: Partial<ActorSelection> = {}) {
    const stream = collectedStream<ActorFeed>();
    const leaving = new AbortController();
    const request = WatchActorsRequest.create({ selection: ActorSelection.create(selection) });
    at.service.handlers.Watch(request, stream, call({}, leaving.signal));
    const view = () => viewOf(stream.messages);
    return {
      stream,
      view,
      /** Why the process is lost; empty if it is not. */
      lost: (process: string) => {
        const seen = view()[process];
        return typeof seen === "string" ? seen : "";
      },
      leave: () => leaving.abort(),
    };
  }

  function recent(at: typeof one, selection: Partial<ActorSelection> = {}, sinceMs = 0) {
    const stream = collectedStream<RecordingPart>();
    const leaving = new AbortController();
    const request = RecentActorsRequest.create({ selection: ActorSelection.create(selection), sinceMs });
    at.service.handlers.Recent(request, stream, call({}, leaving.signal));
    return { stream, leave: () => leaving.abort() };
  }

  return {
    recent,
    bus,
    one,
    two,
    agentFeed,
    connect,
    watch,
    run: async (ms = 100) => {
      // In step, so that messages between them arrive in time.
      for (let passed = 0; passed < ms; passed += 10)
        for (const { clock } of managers) await clock.run({ untilMs: clock.now() + 10 });
    },
  };
}
