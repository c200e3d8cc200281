// A real log that went back in time, that strangers publish to, and in which NATS has lost a record.
import { cpSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { connect, type NatsConnection } from "nats";
import { createService, nodeCalled, serviceNames, sleepers } from "../fixtures/control-client.ts";
import { runMuster, startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { NodeStatus_State } from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import { readMark } from "../../runtime/store/log-mark.ts";
import { MarkFile, markFileName } from "../../runtime/system/mark-file.ts";
import { logStream } from "../../runtime/nats/streams.ts";
import * as subjects from "../../runtime/subjects.ts";
import { patient } from "../support/slowness.ts";

/** Connected as the manager is to its own NATS. */
async function natsOf(t: ExecutionContext, { dataDir }: TestManager): Promise<NatsConnection> {
  const access = readFileSync(join(dataDir, "nats", "nats", "access.json"), "utf8");
  const { port } = JSON.parse(access) as { port: number };
  const file = (name: string): string => join(dataDir, "nats-tls", name);
  const tls = {
    caFile: file("ca.crt"),
    certFile: file("manager.pem"),
    keyFile: file("manager.pem"),
    host: "127.0.0.1",
  };
  const nats = await connect({ servers: `127.0.0.1:${port}`, tls });
  t.teardown(() => nats.close());
  return nats;
}

test.serial(
  "a manager rejects an older copy of its log, and continues once the operator accepts it, also with a node that joined since",
  async (t) => {
    t.timeout(patient(300_000));
    const manager = await startManager(t);
    await createService(manager, sleepers("kept", 0));
    await manager.process.end();
    const storage = join(manager.dataDir, "nats", "nats", "jetstream");
    cpSync(storage, `${storage}.older`, { recursive: true });
    manager.process.start();
    await manager.ready();
    const agent = await startAgent(t, manager, { hostname: "late" });
    await createService(manager, sleepers("lost", 1));
    await until("a task of the lost part to run", () => taskProcesses(agent.dataDir).length === 1);
    await manager.process.end();
    rmSync(storage, { recursive: true });
    cpSync(`${storage}.older`, storage, { recursive: true });

    const ran = await runMuster(manager.process.args);
    t.is(ran.code, 1, ran.stderr);
    t.regex(
      ran.stderr,
      /muster: the log breaks at record \d+: .*this manager has seen record \d+, written at .*: .*start this manager with --accept-log-loss/,
    );
    const { dataDir, port } = manager;
    const accepting = await startManager(t, { dataDir, port, args: ["--accept-log-loss"] });
    t.deepEqual(await serviceNames(accepting), ["kept"]);
    await until("the agent to come back", async () => {
      return (await nodeCalled(accepting, "late")).status?.state === NodeStatus_State.READY;
    });
    await until("tasks unknown to the log to stop", () => taskProcesses(agent.dataDir).length === 0);
    t.true(agent.process.isRunning);
    await accepting.process.end();
    manager.process.start();
    await manager.ready();
    t.deepEqual(await serviceNames(manager), ["kept"], "the flag is needed once");
  },
);

test.serial("strangers' records are skipped, a lost record is detected, and the rest survives", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  await createService(manager, sleepers("before", 0));
  const nats = await natsOf(t, manager);
  nats.publish(subjects.log, Uint8Array.of(1, 2, 3));
  await nats.flush();
  await createService(manager, sleepers("after", 0));
  t.regex(await manager.muster("info"), /something else publishes to the log's subject: 1 messages/);
  await manager.process.end();
  manager.process.start();
  await manager.ready();
  t.deepEqual((await serviceNames(manager)).toSorted(), ["after", "before"]);
  await manager.process.end();
  const whole = await runMuster(["log", "check", "--data-dir", manager.dataDir]);
  t.is(whole.code, 0, whole.stderr);
  t.regex(whole.stdout, /1 messages of another cluster: \d+\nResult: +intact/);

  manager.process.start();
  await manager.ready();
  await createService(manager, sleepers("gone", 0));
  const again = await natsOf(t, manager);
  const manage = await again.jetstreamManager();
  const { state } = await manage.streams.info(logStream);
  await manage.streams.deleteMessage(logStream, state.last_seq - 1, false);
  await manager.process.end();
  const refused = await runMuster(manager.process.args);
  t.is(refused.code, 1, refused.stderr);
  t.regex(refused.stderr, /NATS has lost it.*muster log check/);
  const checked = await runMuster(["log", "check", "--data-dir", manager.dataDir]);
  t.is(checked.code, 1);
  t.regex(checked.stdout, /Result: +breaks at record \d+: NATS has lost it/);
  const repaired = await runMuster(["log", "repair", "--yes", "--data-dir", manager.dataDir]);
  t.is(repaired.code, 0, repaired.stderr);
  t.regex(repaired.stdout, /Repaired: the log continues/);
  t.is(readdirSync(manager.dataDir).filter((name) => name.startsWith("log-removed-")).length, 1);
  const mark = readMark(new MarkFile(join(manager.dataDir, markFileName)));
  t.true(timeMs(mark?.lossAccepted ?? null) > 0, "nodes of the lost part are accepted again, as with the flag");
  manager.process.start();
  await manager.ready();
  const names = await serviceNames(manager);
  t.true(names.includes("before") && names.includes("after"), names.join());
});

test.serial("a node whose records a repair discarded comes back with the same identity", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  await createService(manager, sleepers("before", 0));
  const nats = await natsOf(t, manager);
  const manage = await nats.jetstreamManager();
  const { state } = await manage.streams.info(logStream);
  await createService(manager, sleepers("gone", 0));
  await startAgent(t, manager, { hostname: "late" });
  const isReady = async () => (await nodeCalled(manager, "late")).status?.state === NodeStatus_State.READY;
  await until("the agent to be READY", isReady);
  const { id } = await nodeCalled(manager, "late");
  // The record after the kept ones: everything after it, including the node's records, becomes unreadable.
  await manage.streams.deleteMessage(logStream, state.last_seq + 1, false);
  await manager.process.end();
  const repaired = await runMuster(["log", "repair", "--yes", "--data-dir", manager.dataDir]);
  t.is(repaired.code, 0, repaired.stderr);
  manager.process.start();
  await manager.ready();
  t.deepEqual(await serviceNames(manager), ["before"]);
  await until("the agent to be READY again", async () => isReady().catch(() => false));
  t.is((await nodeCalled(manager, "late")).id, id);
});
