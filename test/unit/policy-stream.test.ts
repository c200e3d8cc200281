import test from "ava";
import { createPolicy } from "../../actors/policy.ts";
import { PolicyFollower, type NodeDataplane } from "../../actors/agent/policy-follower.ts";
import { applyUpdate, emptyState, type NodeState } from "../../machines/policy/node-state.ts";
import { joined, piecesOf } from "../../machines/policy/pieces.ts";
import {
  DataplaneReport,
  DataplaneSet,
  DataplaneSetDelta,
  DataplaneUpdate,
  Manager,
  NetworkPolicy,
  PolicyFollowRequest,
  PolicyPeer,
  PolicyRule,
} from "../../proto/gen/messages.ts";
import { RpcError, Status, type CallContext, type RpcChannel } from "../../runtime/ports/rpc.ts";
import { chosen, nodeOf, resourceOf, serviceOf, taskOf } from "../support/policies.ts";
import { call, testManager, type TestManager } from "../support/manager.ts";

const open = NetworkPolicy.create({
  name: "db",
  selector: "service == 'db'",
  appliesIngress: true,
  ingress: [
    PolicyRule.create({ action: "allow", source: PolicyPeer.create({ selector: chosen("service == 'web'") }) }),
  ],
});

function lab() {
  const manager = testManager();
  manager.seed("node", nodeOf("n1"), nodeOf("n2"));
  manager.seed("service", serviceOf("web"), serviceOf("db"));
  manager.seed("task", taskOf("d1", "db", "n1", ["10.0.0.1/24"]), taskOf("w1", "web", "n2", ["10.0.0.2/24"]));
  manager.seed("resource", resourceOf({ kind: "NetworkPolicy", object: open }));
  const link = { isCurrent: true, unread: 0 };
  const policy = createPolicy(manager.env, () => link.isCurrent);
  return { manager, link, policy };
}

/** A channel of node n1 to the manager, and a function that ends it. */
function channelTo({ policy, link }: ReturnType<typeof lab>): {
  readonly channel: RpcChannel;
  readonly written: DataplaneUpdate[];
  /** Ends the last opened stream, but not the channel. */
  breakOff(): void;
} {
  let abort = new AbortController();
  let end = (): void => undefined;
  const written: DataplaneUpdate[] = [];
  const callOf = (): CallContext =>
    ({
      peer: { identity: { nodeId: "n1", role: "swarm-worker", organization: "c" }, local: false, address: "" },
      signal: abort.signal,
    }) as unknown as CallContext;
  const channel = {
    serverStream: (
      _: unknown,
      request: PolicyFollowRequest,
      on: { onMessage(of: DataplaneUpdate): void; onEnd(error: RpcError | null): void },
    ) => {
      abort = new AbortController();
      end = () => on.onEnd(null);
      try {
        policy.handlers.Follow(
          request,
          {
            write: (message) => {
              const copy = DataplaneUpdate.decode(DataplaneUpdate.encode(message));
              written.push(copy);
              on.onMessage(copy);
            },
            end: (error) => on.onEnd(error ?? null),
            bufferedBytes: () => link.unread,
          },
          callOf(),
        );
      } catch (error) {
        // An exception of a method is its call's outcome.
        on.onEnd(error as RpcError);
      }
      const own = abort;
      return { cancel: () => own.abort() };
    },
    unary: async (_: unknown, report: DataplaneReport) => policy.handlers.Report(report, callOf()),
  } as unknown as RpcChannel;
  const breakOff = (): void => {
    abort.abort();
    end();
  };
  return { channel, written, breakOff };
}

function dataplane() {
  const changes: DataplaneUpdate[] = [];
  const state: NodeState = emptyState();
  let say: (report: DataplaneReport) => void = () => undefined;
  const plane: NodeDataplane = {
    take: (change) => {
      changes.push(change);
      applyUpdate(state, change);
    },
    onReport: (listener) => {
      say = listener;
      return () => undefined;
    },
  };
  return { plane, changes, state, say: (report: DataplaneReport) => say(report) };
}

const members = (state: NodeState): string[] => [...state.sets.values()].flatMap((set) => [...set.members]);

async function run({ clock }: TestManager, ms: number): Promise<void> {
  clock.advance(ms);
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
}

test("PF1: a node gets the whole state, then changes, and after a new session only the difference", async (t) => {
  const world = lab();
  const { manager } = world;
  const own = dataplane();
  const follower = new PolicyFollower(manager.env, "n1", own.plane);
  const first = follower.attach(channelTo(world).channel, () => undefined);
  await run(manager, 50);
  t.is(own.changes.length, 1);
  t.true(own.changes[0]?.fresh);
  t.deepEqual(members(own.state), ["10.0.0.2"]);
  manager.seed("task", taskOf("w2", "web", "n2", ["10.0.0.3/24"]));
  await run(manager, 50);
  t.deepEqual(own.changes[1]?.setDeltas[0]?.added, ["10.0.0.3"]);
  first.cancel();
  manager.drop("task", "w1");
  await run(manager, 50);
  t.is(own.changes.length, 2);
  follower.attach(channelTo(world).channel, () => undefined);
  await run(manager, 50);
  t.is(own.changes.length, 3);
  t.false(own.changes[2]?.fresh);
  t.deepEqual(own.changes[2]?.setDeltas[0]?.removed, ["10.0.0.2"]);
  t.deepEqual(members(own.state), ["10.0.0.3"]);
  follower.stop();
  world.policy.stop();
});

test("a manager's non-standard port is a failsafe port while such a manager exists", async (t) => {
  const world = lab();
  const { manager } = world;
  const own = dataplane();
  const follower = new PolicyFollower(manager.env, "n1", own.plane);
  follower.attach(channelTo(world).channel, () => undefined);
  await run(manager, 50);
  const inbound = (): string => own.state.config.values["FailsafeInboundHostPorts"] ?? "";
  t.is(inbound(), "tcp:22,tcp:2377,tcp:4222,tcp:6222,udp:68,udp:4789");
  manager.seed("manager", Manager.create({ id: "m1", addr: "m1.example:2377", alive: true }));
  await run(manager, 50);
  t.is(own.changes.length, 1, "unchanged state is not sent");
  manager.seed("manager", Manager.create({ id: "m2", addr: "[2001:db8::2]:4000", alive: true }));
  await run(manager, 50);
  t.is(inbound(), "tcp:22,tcp:2377,tcp:4222,tcp:6222,udp:68,udp:4789,tcp:4000");
  manager.drop("manager", "m2");
  await run(manager, 50);
  t.is(inbound(), "tcp:22,tcp:2377,tcp:4222,tcp:6222,udp:68,udp:4789");
  follower.stop();
  world.policy.stop();
});

test("PL1: a manager that is behind what the node has already seen sends nothing until it has caught up", async (t) => {
  const world = lab();
  const { manager, link } = world;
  link.isCurrent = false;
  const own = dataplane();
  const follower = new PolicyFollower(manager.env, "n1", own.plane);
  follower.attach(channelTo(world).channel, () => undefined);
  await run(manager, 200);
  t.is(own.changes.length, 0);
  link.isCurrent = true;
  await run(manager, 200);
  t.is(own.changes.length, 1);
  const { version } = own.changes[0] as DataplaneUpdate;
  t.is(version, manager.store.version);
  // Another manager, further behind.
  const late = lab();
  late.manager.drop("task", "w1");
  const { written, channel } = channelTo(late);
  channel.serverStream({} as never, PolicyFollowRequest.create({ version: late.manager.store.version + 1 }) as never, {
    onMessage: () => undefined,
    onEnd: () => undefined,
  });
  await run(late.manager, 500);
  t.is(written.length, 0);
  late.manager.seed("node", nodeOf("n3"));
  await run(late.manager, 500);
  t.is(written.length > 0, true);
  world.policy.stop();
  late.policy.stop();
});

test("PL2: updates that a node does not read are merged, and sent once when it reads again", async (t) => {
  const world = lab();
  const { manager, link } = world;
  const own = dataplane();
  const follower = new PolicyFollower(manager.env, "n1", own.plane);
  const { channel, written } = channelTo(world);
  follower.attach(channel, () => undefined);
  await run(manager, 50);
  const before = written.length;
  link.unread = 10_000_000;
  for (let round = 0; round < 100; round++) {
    manager.seed("task", taskOf("w9", "web", "n2", [`10.0.1.${round + 1}/24`]));
    await run(manager, 20);
  }
  t.is(written.length, before);
  link.unread = 0;
  await run(manager, 100);
  t.deepEqual(own.changes.at(-1)?.setDeltas[0]?.added, ["10.0.1.100"]);
  t.is(own.changes.length, 2);
  world.policy.stop();
});

test("MS3: a stream that ends is reopened in the same session; a manager that delivers nothing is left", async (t) => {
  const world = lab();
  const { manager } = world;
  const own = dataplane();
  const reasons: string[] = [];
  const follower = new PolicyFollower(manager.env, "n1", own.plane);
  const { channel, written, breakOff } = channelTo(world);
  follower.attach(channel, (reason) => reasons.push(reason));
  await run(manager, 50);
  t.is(own.changes.length, 1);
  manager.seed("task", taskOf("w2", "web", "n2", ["10.0.0.3/24"]));
  breakOff();
  const before = written.length;
  for (let step = 0; step < 20; step++) await run(manager, 50);
  t.true(written[before]?.fresh);
  t.deepEqual(own.changes[1]?.setDeltas[0]?.added, ["10.0.0.3"]);
  t.deepEqual(reasons, []);
  world.policy.stop();
  for (let step = 0; step < 2_000 && reasons.length === 0; step++) await run(manager, 50);
  t.deepEqual(reasons, ["the manager is stopping"]);
  // PS1
  t.deepEqual(members(own.state), ["10.0.0.2", "10.0.0.3"]);
  follower.stop();
});

test("a manager without this service is not asked twice, and the session continues", async (t) => {
  const { manager } = lab();
  const own = dataplane();
  const reasons: string[] = [];
  const follower = new PolicyFollower(manager.env, "n1", own.plane);
  let asked = 0;
  const channel = {
    serverStream: (_: unknown, _request: unknown, on: { onEnd(error: RpcError | null): void }) => {
      asked += 1;
      on.onEnd(new RpcError(Status.UNIMPLEMENTED, "unknown service"));
      return { cancel: () => undefined };
    },
  } as unknown as RpcChannel;
  follower.attach(channel, (reason) => reasons.push(reason));
  for (let step = 0; step < 100; step++) await run(manager, 500);
  t.is(asked, 1);
  t.deepEqual(reasons, []);
  follower.stop();
});

test("a follower that left is forgotten, and gets nothing more", async (t) => {
  const world = lab();
  const { manager } = world;
  const own = dataplane();
  const reasons: string[] = [];
  const follower = new PolicyFollower(manager.env, "n1", own.plane);
  const stream = follower.attach(channelTo(world).channel, (reason) => reasons.push(reason));
  await run(manager, 50);
  stream.cancel();
  manager.seed("task", taskOf("w2", "web", "n2", ["10.0.0.3/24"]));
  world.policy.stop();
  for (let step = 0; step < 100; step++) await run(manager, 500);
  t.is(own.changes.length, 1);
  t.deepEqual(reasons, []);
  follower.stop();
});

test("a node's dataplane report is kept, and written only when it changes", async (t) => {
  const world = lab();
  const { manager } = world;
  const own = dataplane();
  const follower = new PolicyFollower(manager.env, "n1", own.plane);
  follower.attach(channelTo(world).channel, () => undefined);
  const said = DataplaneReport.create({ state: "in-sync", restarts: 3 });
  own.say(said);
  await run(manager, 1_100);
  t.is(manager.store.get("resource", "n1")?.kind, "muster.dataplane");
  const { version } = manager.store;
  own.say(DataplaneReport.create({ state: "in-sync", restarts: 3 }));
  await run(manager, 1_100);
  t.is(manager.store.version, version);
  own.say(DataplaneReport.create({ state: "restarting", restarts: 3 }));
  manager.leaderless = true;
  await run(manager, 1_100);
  manager.leaderless = false;
  await run(manager, 1_100);
  const { payload } = manager.store.get("resource", "n1") ?? {};
  t.is(DataplaneReport.decode(payload?.value ?? new Uint8Array()).state, "restarting");
  follower.stop();
  world.policy.stop();
});

test("an update in pieces is the same update, and no piece is large", (t) => {
  const many = Array.from({ length: 23_000 }, (_, at) => `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`);
  const update = DataplaneUpdate.create({
    fresh: true,
    inSync: true,
    version: 7,
    sets: [
      DataplaneSet.create({ id: "a", type: 0, members: many }),
      DataplaneSet.create({ id: "b", type: 0, members: [] }),
    ],
    setDeltas: [DataplaneSetDelta.create({ id: "c", added: many.slice(0, 6_000), removed: ["x"] })],
    removedSets: ["d"],
  });
  const pieces = piecesOf(update);
  t.true(pieces.length >= 6);
  for (const piece of pieces) t.true(DataplaneUpdate.encode(piece).length < 200_000);
  t.deepEqual(
    pieces.map(({ fresh, inSync }) => [fresh, inSync]),
    pieces.map((_, at) => [at === 0, at === pieces.length - 1]),
  );
  const again = joined(pieces);
  t.deepEqual(DataplaneUpdate.toJson(again), DataplaneUpdate.toJson(update));
});

test("a report that is too large is rejected, and one that comes too soon waits", async (t) => {
  const { manager, policy } = lab();
  const said = (at: number, bytes: number): DataplaneReport =>
    DataplaneReport.create({ state: `${at}`.padEnd(bytes, "x"), restarts: at });
  const identity = { nodeId: "n1", role: "swarm-worker", organization: "c" } as const;
  const context: CallContext = call({ identity, local: false, address: "" });
  const report = async (at: number, bytes: number): Promise<unknown> =>
    policy.handlers.Report(said(at, bytes), context);
  await t.throwsAsync(report(1, 600_000), { message: /too large: 6000\d\d bytes, limit 524288/ });
  for (let at = 1; at <= 4; at += 1) await report(at, 500_000);
  await t.throwsAsync(report(5, 500_000), { message: /exceeded the rate limit of dataplane reports/ });
  await manager.clock.run({ untilMs: manager.clock.now() + 10_000 });
  await t.notThrowsAsync(report(5, 500_000));
});
