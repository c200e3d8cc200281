// Access to every method for every kind of caller: at the start of a call, and during it.
// Labels are those of edges/grpc.
import test, { type ExecutionContext } from "ava";
import { accessByPath, type Access } from "../../edges/grpc/roles.ts";
import { createRoot } from "../../lib/pki/index.ts";
import { Status, type RpcChannel } from "../../runtime/ports/rpc.ts";
import type { Role } from "../../runtime/user-roles.ts";
import { accessWorld, methods, start, type Call } from "../support/access-world.ts";
import { identityOf, until, userIdentityOf } from "../support/grpc-world.ts";

type World = Awaited<ReturnType<typeof accessWorld>>;

interface Kind {
  /** A connection of such a caller; if it does not start as one, `change` turns it into one. */
  readonly connect: (world: World) => Promise<RpcChannel>;
  readonly change?: (world: World) => void;
  /** Calls that it may make in the end. */
  readonly may: readonly Access[];
  /** The same before the change; by default everything. */
  readonly mightBefore?: readonly Access[];
  /** The error of all other calls. */
  readonly refusal: RegExp;
}

const roles: readonly Access[] = ["read-only", "operator", "admin"];
const everyone: readonly Access[] = ["anyone", "worker-or-manager", "manager", "manager-or-local", ...roles];
const notOfManagers = /not part of OUs: \[swarm-manager\]/;
const hourMs = 3_600_000;

const asWorker = async ({ channel, root }: World) => channel(await identityOf({ root, nodeId: "w" }));
const asManager = async ({ channel, root }: World) =>
  channel(await identityOf({ root, nodeId: "m", role: "swarm-manager" }));

const asUser =
  (role: Role) =>
  async (world: World): Promise<RpcChannel> => {
    // A caller that reconnects after a change finds the user as the change left it.
    if (!world.isMade("ada")) world.user("ada", { role, mark: "mark" });
    return world.channel(await userIdentityOf({ root: world.root, name: "ada", mark: "mark" }));
  };
const notForUsers = /this call is not available to users/;
const isVoid = /certificate of user ada is no longer valid: .* Log in again/;

const kinds: Readonly<Record<string, Kind>> = {
  "a read-only user": {
    connect: asUser("read-only"),
    may: ["anyone", "read-only"],
    refusal:
      /this needs the role (operator|admin), and user ada has the role read-only|this call is not available to users/,
  },
  "an operator": {
    connect: asUser("operator"),
    may: ["anyone", "read-only", "operator"],
    refusal: /this needs the role admin, and user ada has the role operator|this call is not available to users/,
  },
  "an admin": {
    connect: asUser("admin"),
    may: ["anyone", ...roles],
    refusal: notForUsers,
  },
  "an admin who has become read-only": {
    connect: asUser("admin"),
    change: ({ user }) => user("ada", { role: "read-only", mark: "mark" }),
    may: ["anyone", "read-only"],
    mightBefore: ["anyone", ...roles],
    refusal: /this needs the role|this call is not available to users/,
  },
  "an operator who has become an admin": {
    connect: asUser("operator"),
    change: ({ user }) => user("ada", { role: "admin", mark: "mark" }),
    may: ["anyone", ...roles],
    mightBefore: ["anyone", "read-only", "operator"],
    refusal: notForUsers,
  },
  "an admin who was removed or disabled": {
    connect: asUser("admin"),
    change: ({ user }) => user("ada", null),
    may: ["anyone"],
    mightBefore: ["anyone", ...roles],
    refusal: isVoid,
  },
  "an admin with a changed password": {
    connect: asUser("admin"),
    change: ({ user }) => user("ada", { role: "admin", mark: "another" }),
    may: ["anyone"],
    mightBefore: ["anyone", ...roles],
    refusal: isVoid,
  },
  "an admin whose certificate has expired": {
    connect: asUser("admin"),
    change: ({ clock }) => clock.pass(hourMs + 2_000),
    may: [],
    mightBefore: ["anyone", ...roles],
    refusal: /client certificate not accepted: CERT_HAS_EXPIRED/,
  },
  "an anonymous caller, without certificate": {
    connect: ({ channel }) => channel(null),
    may: ["anyone"],
    refusal: /no client certificates in request/,
  },
  "a worker": { connect: asWorker, may: ["anyone", "worker-or-manager"], refusal: notOfManagers },
  "a manager": {
    connect: asManager,
    may: everyone,
    refusal: /never/,
  },
  "a caller of the control socket": {
    connect: ({ local }) => local(),
    may: ["anyone", "manager-or-local", ...roles],
    refusal: /no client certificates in request/,
  },
  "a removed worker": {
    connect: asWorker,
    change: ({ remove }) => remove("w"),
    may: ["anyone"],
    mightBefore: ["anyone", "worker-or-manager"],
    refusal: /node w was removed from swarm|not part of OUs/,
  },
  "a removed manager": {
    connect: asManager,
    change: ({ remove }) => remove("m"),
    may: ["anyone"],
    refusal: /node m was removed from swarm/,
  },
  "a demoted manager": {
    connect: asManager,
    change: ({ demote }) => demote("m"),
    may: ["anyone", "worker-or-manager"],
    refusal: notOfManagers,
  },
  "a manager that was demoted and removed": {
    connect: async (world) => {
      world.demote("m");
      return asManager(world);
    },
    change: ({ remove }) => remove("m"),
    may: ["anyone"],
    mightBefore: ["anyone", "worker-or-manager"],
    refusal: /removed from swarm|not part of OUs/,
  },
  "a node whose certificate has expired": {
    connect: asManager,
    change: ({ clock }) => clock.pass(hourMs + 2_000),
    may: [],
    refusal: /client certificate not accepted: CERT_HAS_EXPIRED/,
  },
};

function isOf(call: Pick<Call, "access">, { may }: Kind): boolean {
  return may.includes(call.access);
}

test("every method of the table is tested, and there is no other", (t) => {
  t.deepEqual(methods.map(({ path }) => path).toSorted(), [...accessByPath.keys()].toSorted());
});

async function beginsAsItMay(t: ExecutionContext, kind: Kind): Promise<void> {
  const world = await accessWorld(t);
  const channel = await kind.connect(world);
  kind.change?.(world);
  // The change has ended that connection: a rejected caller reconnects.
  const again = kind.change === undefined ? channel : await kind.connect(world);
  const calls = methods.map((method) => start(again, method));
  for (const call of calls.filter((each) => !isOf(each, kind))) {
    const error = await call.ended;
    t.is(error?.code, Status.PERMISSION_DENIED, call.path);
    t.regex(error?.message ?? "", kind.refusal, call.path);
  }
  const admitted = calls.filter((each) => isOf(each, kind)).map(({ path }) => path);
  await until(() => world.begun.length === admitted.length);
  t.deepEqual(world.begun.toSorted(), admitted.toSorted());
}

async function endsAsItMust(t: ExecutionContext, kind: Kind): Promise<void> {
  const world = await accessWorld(t);
  const before = kind.mightBefore ?? everyone;
  const channel = await kind.connect(world);
  let isClosed = false;
  channel.onClosed(() => (isClosed = true));
  const open = methods.filter(({ access }) => before.includes(access));
  const calls = open.map((method) => start(channel, method));
  // A neighbour, which nothing has happened to.
  const other = await world.channel(
    await identityOf({ root: world.root, nodeId: "other", nowMs: Date.now() + hourMs }),
  );
  const untouched = start(other, methods.find(({ path }) => path.endsWith("/Session")) as (typeof methods)[0]);
  await until(() => world.begun.length === calls.length + 1 && untouched.received === 1);
  t.true(calls.every(({ outcome }) => outcome === "open"));

  kind.change?.(world);
  // Nothing more is sent, whatever the handlers still write.
  for (const sinks of world.sinks.values()) for (const sink of sinks) sink.write({});
  for (const call of calls) {
    const error = await call.ended;
    t.is(error?.code, isOf(call, kind) ? Status.UNAVAILABLE : Status.PERMISSION_DENIED, call.path);
    if (!isOf(call, kind)) t.regex(error?.message ?? "", kind.refusal, call.path);
    t.true(call.received <= 1, call.path);
  }
  await until(() => isClosed);
  t.is(world.aborted(), calls.length);
  t.is(untouched.outcome, "open");
  await until(() => untouched.received === 2);
}

for (const [name, kind] of Object.entries(kinds)) {
  if (!name.endsWith("certificate has expired"))
    test(`G1: ${name} can start exactly its permitted methods`, (t) => beginsAsItMay(t, kind));
  if (kind.change !== undefined) test(`G3: open calls of all methods end for ${name}`, (t) => endsAsItMust(t, kind));
}

test("G1: with a certificate of a former root, or an expired one, no call starts", async (t) => {
  const world = await accessWorld(t);
  const stranger = await identityOf({ root: await createRoot(), role: "swarm-manager" });
  const late = await identityOf({ root: world.root, role: "swarm-manager", nowMs: Date.now() - 2 * hourMs - 60_000 });
  for (const identity of [stranger, late]) {
    const channel = await world.channel(identity);
    for (const call of methods.map((method) => start(channel, method))) {
      const error = await call.ended;
      t.is(error?.code, Status.PERMISSION_DENIED, call.path);
      t.regex(error?.message ?? "", /client certificate not accepted/);
    }
  }
  t.deepEqual(world.begun, []);
});

test("G3: open calls of all methods end when their root is no longer trusted, and no others do", async (t) => {
  const world = await accessWorld(t);
  const next = await createRoot();
  const former = await asManager(world);
  const both = { ...world.credentials, rootPem: world.root.certificatePem + next.certificatePem };
  world.server.setCredentials(both);
  const renewed = await world.channel(await identityOf({ root: next, nodeId: "n", role: "swarm-manager" }));
  const calls = methods.map((method) => start(former, method));
  const stays = methods.map((method) => start(renewed, method));
  await until(() => world.begun.length === 2 * methods.length);
  t.true(
    calls.every(({ outcome }) => outcome === "open"),
    "both roots are trusted for a while",
  );

  world.server.setCredentials({ ...both, rootPem: next.certificatePem });
  for (const call of calls) {
    const error = await call.ended;
    t.is(error?.code, Status.PERMISSION_DENIED, call.path);
    t.regex(error?.message ?? "", /client certificate not accepted: no root of the cluster vouches for it/);
  }
  t.true(stays.every(({ outcome }) => outcome === "open"));
  t.is(world.aborted(), methods.length);
});

test("K2: setting a clock back prolongs no connection, and setting it forward ends it at its next call", async (t) => {
  const world = await accessWorld(t);
  const heartbeat = methods.find(({ path }) => path.endsWith("/Heartbeat")) as (typeof methods)[0];
  const back = start(await asWorker(world), heartbeat);
  await until(() => world.begun.length === 1);
  world.clock.set(-12 * hourMs);
  world.clock.pass(hourMs - 60_000);
  t.is(back.outcome, "open");
  world.clock.pass(62_000);
  t.is((await back.ended)?.code, Status.PERMISSION_DENIED);

  world.clock.set(11 * hourMs - 62_000);
  const channel = await asWorker(world);
  const forward = start(channel, heartbeat);
  await until(() => world.begun.length === 2);
  world.clock.set(2 * hourMs);
  t.is(forward.outcome, "open");
  t.is((await start(channel, heartbeat).ended)?.code, Status.PERMISSION_DENIED);
  t.is((await forward.ended)?.code, Status.PERMISSION_DENIED);
  t.is(world.begun.length, 2);
});

test("K1: a node that becomes a manager, for the first time or again, reconnects; until then its rights are unchanged", async (t) => {
  const world = await accessWorld(t);
  world.demote("m");
  const channel = await asManager(world);
  const session = methods.find(({ path }) => path.endsWith("/Session")) as (typeof methods)[0];
  const watch = methods.find(({ path }) => path.endsWith("/Watch")) as (typeof methods)[0];
  t.is((await start(channel, watch).ended)?.code, Status.PERMISSION_DENIED);
  const open = start(channel, session);
  await until(() => open.received === 1);
  world.promote("m");
  t.is((await open.ended)?.code, Status.UNAVAILABLE);
  const again = start(await asManager(world), watch);
  await until(() => again.received === 1);
});

test("K2: closed connections leave no timer behind", async (t) => {
  const world = await accessWorld(t);
  const channel = await asWorker(world);
  await until(() => world.clock.waiting === 1);
  channel.close();
  await until(() => world.clock.waiting === 0);
  t.pass();
});

test("a peer that does not read is disconnected all the same", async (t) => {
  const world = await accessWorld(t);
  const channel = await asWorker(world);
  const session = methods.find(({ path }) => path.endsWith("/Session")) as (typeof methods)[0];
  let received = 0;
  const call = channel.serverStream(session, session.request.create({}), {
    onMessage: () => (received += 1),
    onEnd: () => {},
  });
  await until(() => received === 1);
  call.pause();
  const [sink] = world.sinks.get(session.path) ?? [];
  const message = session.response.create({ sessionId: "x".repeat(1_000_000) });
  for (let at = 0; at < 30; at += 1) sink?.write(message);
  t.true((sink?.bufferedBytes() ?? 0) > 1_000_000);
  world.remove("w");
  t.true((sink?.bufferedBytes() ?? 0) <= 1_000_100);
  await until(() => world.server.connectionCount === 0);
});
