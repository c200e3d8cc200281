// How the leader rotates to a wanted root, until nodes trust it.
import test from "ava";
import { rootRotationLimits, rootRotationMachine } from "../../machines/certificates/root-rotation.machine.ts";
import { startRootRotation } from "../../actors/certificates/root-rotation.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import { IssuanceStatus_State, Node } from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";
import { ChartRun } from "../support/chart-run.ts";
import { rootWorld, text, wanted, worker } from "../support/roots.ts";

test("nodes are notified in batches, and the root is switched once the last of them has renewed", async (t) => {
  const { clock, cluster, drop, run, rotation, seed, store, update } = await rootWorld(t);
  const oldRoot = text.decode(cluster().rootCa?.caCert);
  const tokens = cluster().rootCa?.joinTokens;
  const ids = Array.from({ length: rootRotationLimits.batchMax + 5 }, (_, at) => `node${at}`);
  seed("node", ...ids.map((id) => worker(id, oldRoot)), worker("asking", oldRoot, IssuanceStatus_State.RENEW));
  rotation();
  const newRoot = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  const told = (): number =>
    [...store.all("node")].filter(({ certificate }) => certificate?.status?.state === IssuanceStatus_State.ROTATE)
      .length;
  await run(() => told() > 0);
  t.is(told(), rootRotationLimits.batchMax);
  t.is(store.get("node", "asking")?.certificate?.status?.state, IssuanceStatus_State.RENEW);
  clock.advance(rootRotationLimits.pauseMs);
  await run(() => told() > rootRotationLimits.batchMax);
  // Including the manager's own node.
  t.is(told(), ids.length + 1);

  // A node that is down blocks everything until it is removed.
  drop("node", "manager1");
  drop("node", "asking");
  seed("node", ...ids.slice(1).map((id) => worker(id, newRoot)));
  clock.advance(10 * rootRotationLimits.pauseMs);
  await run(() => cluster().rootCa?.rootRotation === null, 20);
  t.not(cluster().rootCa?.rootRotation, null);
  drop("node", ids[0] as string);
  await run(() => cluster().rootCa?.rootRotation === null);

  const { rootCa } = cluster();
  t.is(text.decode(rootCa?.caCert), newRoot);
  t.is(rootCa?.rootRotation, null);
  t.is(rootCa?.lastForcedRotation, 1);
  for (const role of ["worker", "manager"] as const) {
    const token = pki.parseJoinToken(rootCa?.joinTokens?.[role] ?? "");
    t.true(token.kind === "token" && pki.rootMatches(token, rootCa?.caCert ?? new Uint8Array()));
    t.not(rootCa?.joinTokens?.[role], tokens?.[role]);
  }
});

test("a node that died while joining blocks a rotation for a minute at most", async (t) => {
  const { clock, cluster, drop, run, rotation, seed, update } = await rootWorld(t);
  drop("node", "manager1");
  seed("node", Node.patch(worker("half", ""), { description: null }));
  rotation();
  await update({ forceRotate: 1 });
  const turns = async (ms: number): Promise<void> => {
    for (let at = 0; at < ms; at += rootRotationLimits.pauseMs) {
      clock.advance(rootRotationLimits.pauseMs);
      await run(() => cluster().rootCa?.rootRotation === null, 5);
    }
  };
  await turns(45_000);
  t.not(cluster().rootCa?.rootRotation, null);
  await turns(30_000);
  t.is(cluster().rootCa?.rootRotation, null);
});

test("U2: a node that never registered blocks a rotation for a minute, even if a clock that was ahead wrote it", async (t) => {
  const { clock, cluster, drop, env, run, seed, update } = await rootWorld(t);
  drop("node", "manager1");
  seed("node", Node.patch(worker("half", ""), { description: null }));
  const behind: Clock = {
    now: () => clock.now() - 4 * 3_600_000,
    monotonic: () => clock.monotonic(),
    setTimeout: (callback, ms) => clock.setTimeout(callback, ms),
    clearTimeout: (timer) => clock.clearTimeout(timer),
    soon: (callback) => clock.soon(callback),
  };
  const running = startRootRotation({ ...env, clock: behind }, pki);
  t.teardown(() => running.stop());
  await update({ forceRotate: 1 });
  for (let at = 0; at < 75_000; at += rootRotationLimits.pauseMs) {
    clock.advance(rootRotationLimits.pauseMs);
    await run(() => cluster().rootCa?.rootRotation === null, 5);
  }
  t.is(cluster().rootCa?.rootRotation, null);
});

test("a new leader continues where the old one stopped", async (t) => {
  const { cluster, drop, run, rotation, seed, store, update } = await rootWorld(t);
  drop("node", "manager1");
  seed("node", worker("node1", text.decode(cluster().rootCa?.caCert)));
  const first = rotation();
  const newRoot = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  const state = () => store.get("node", "node1")?.certificate?.status?.state;
  await run(() => state() === IssuanceStatus_State.ROTATE);
  first.stop();
  // It renews while there is no leader.
  seed("node", worker("node1", newRoot));
  await run(() => false, 10);
  t.not(cluster().rootCa?.rootRotation, null);
  rotation();
  await run(() => cluster().rootCa?.rootRotation === null);
  t.is(text.decode(cluster().rootCa?.caCert), newRoot);
});

test("a cancelled rotation is left alone", async (t) => {
  const { clock, cluster, drop, run, rotation, seed, update } = await rootWorld(t);
  const present = {
    certificatePem: text.decode(cluster().rootCa?.caCert),
    keyPem: text.decode(cluster().rootCa?.caKey),
  };
  drop("node", "manager1");
  seed("node", worker("node1", present.certificatePem));
  rotation();
  const newRoot = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  await update(wanted(present));
  seed("node", worker("node1", newRoot));
  clock.advance(2 * rootRotationLimits.pauseMs);
  await run(() => false, 20);
  t.is(text.decode(cluster().rootCa?.caCert), present.certificatePem);
});

test("the chart of a rotation starts at the store's state, pauses after a failed write and ends when cancelled", (t) => {
  t.is(new ChartRun(rootRotationMachine, { isWanted: false }).state, "idle");
  const run = new ChartRun(rootRotationMachine, { isWanted: true });
  t.is(run.state, "notifying");
  t.true(run.names.includes("notifyNodes"));
  run.send({ type: "write.failed", reason: "no leader" });
  t.is(run.state, "pausing");
  t.is(run.snapshot.context.reason, "no leader");
  run.send({ type: "nodes.renewed" });
  t.is(run.state, "switching");
  t.true(run.names.includes("switchRoot"));
  // Another root is requested at the moment of the switch.
  t.is(run.send({ type: "rotation.wanted" }).state, "notifying");
  t.is(run.send({ type: "rotation.over" }).state, "idle");
});
