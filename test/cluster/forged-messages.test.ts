// An attacker with NATS's credentials but without the cluster's keys reads nothing, runs nothing and ends no session, on a real
// nats-server that accepts large messages.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { connect } from "nats";
import { TaskCallRequest, TaskExec, NodeQuestion } from "../../proto/gen/messages.ts";
import { busSubjects, subjectKind, taskQuestion } from "../../runtime/subjects.ts";
import { runningTasks, sleepers, createService, status, nodeCalled } from "../fixtures/control-client.ts";
import { watchActors } from "../fixtures/actor-feed.ts";
import { runMuster, startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { natsBinaries } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

/** Messages that a manager has dropped, by kind of subject and reason. */
async function refusals(metrics: string): Promise<ReadonlyMap<string, number>> {
  const text = await (await fetch(`http://${metrics}/metrics`)).text();
  const found = new Map<string, number>();
  for (const line of text.split("\n")) {
    const [, subject, reason, count] =
      /^muster_bus_refused_total\{subject="([^"]*)",reason="([^"]*)"\} (\d+)/.exec(line) ?? [];
    if (subject !== undefined) found.set(`${subject} ${reason}`, Number(count));
  }
  return found;
}

for (const binary of natsBinaries) {
  test.serial(`any message that strangers publish on NATS is dropped (${binary})`, async (t) => {
    t.timeout(patient(300_000));
    const folder = tempDir(t, "forged");
    const port = await freePort();
    const file = join(folder, "nats.conf");
    writeFileSync(
      file,
      `listen: "127.0.0.1:${port}"\nmax_payload: 16MB\njetstream { store_dir: ${JSON.stringify(join(folder, "nats"))} }\n`,
    );
    const server = spawn(binary, ["-c", file], { stdio: "ignore" });
    t.teardown(async () => {
      if (server.exitCode === null && server.signalCode === null && server.kill("SIGKILL")) await once(server, "exit");
    });
    const nats = `nats://127.0.0.1:${port}`;
    const metrics = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`] as const;
    const leader = await startManager(t, { nats, args: ["--metrics", metrics[0]] });
    const follower = await startManager(t, { nats, join: leader, args: ["--metrics", metrics[1]] });
    const managers: readonly TestManager[] = [leader, follower];
    const { managerId } = await status(leader);
    await until("a follower to know its leader", async () => (await status(follower)).leaderId === managerId);
    await startAgent(t, follower, { hostname: "n1" });
    await createService(leader, sleepers("web", 1));
    await until("a running task", async () => (await runningTasks(leader)).length === 1);
    const node = await nodeCalled(leader, "n1");
    const [task] = await runningTasks(leader);

    // Managers receive the feed only for a listener.
    await watchActors(t, follower, { managersOnly: true });
    const stranger = await connect({ servers: `127.0.0.1:${port}` });
    t.teardown(() => stranger.close());
    const wire: { readonly subject: string; readonly data: Uint8Array }[] = [];
    const tap = stranger.subscribe("muster.v1.>", {
      callback: (_, { data, subject }) => {
        wire.push({ subject, data: Uint8Array.from(data) });
      },
    });
    const canary = "a-canary-that-passes-over-the-bus";
    const exec = (...command: readonly string[]) =>
      runMuster([
        "--host",
        `unix://${join(leader.dataDir, "control.sock")}`,
        "task",
        "exec",
        task?.id ?? "",
        ...command,
      ]);
    // The leader receives the call; the follower, where the node is connected, runs it.
    const ran = await exec("echo", canary);
    t.is(ran.stdout.trim(), canary, ran.stderr);
    t.true(wire.some(({ subject }) => subjectKind(subject) === "task.question"));
    t.false(
      wire.some(({ data }) => Buffer.from(data).includes(canary)),
      "terminals are not readable",
    );

    // The attack that worked before messages were sealed.
    const touched = join(folder, "touched");
    const request = TaskCallRequest.create({
      taskId: task?.id ?? "",
      exec: TaskExec.create({ command: ["touch", touched] }),
    });
    const question = NodeQuestion.create({ callId: "forged", home: managerId, request });
    const garbage = [
      new Uint8Array(),
      Uint8Array.of(1, 2, 3),
      NodeQuestion.encode(question),
      NodeQuestion.encode(question).subarray(0, 9),
    ];
    // Recorded here, replayed below.
    await until("a manager's beat", () => wire.some(({ subject }) => subjectKind(subject) === "manager.beat"));
    tap.unsubscribe();
    const ids = [node.id, managerId, (await status(follower)).managerId];
    for (const { build } of busSubjects) {
      for (const subject of new Set(ids.map(build))) {
        for (const data of garbage) {
          stranger.publish(subject, data);
          stranger.publish(subject, data, { reply: `stranger.${subject}` });
        }
      }
    }
    // One at a time: a nats-server disconnects clients that read a flood too slowly.
    for (const { build, kind } of busSubjects.filter((each) => each.kind !== "life.prove")) {
      for (const id of new Set(ids.map(build))) stranger.publish(id, new Uint8Array(10 * 1024 * 1024));
      await stranger.flush();
      await until(`${kind}: too large`, async () =>
        (await Promise.all(metrics.map(refusals))).some((each) => (each.get(`${kind} too large`) ?? 0) > 0),
      );
    }
    // All recorded messages again, each on its own subject and on a wrong one.
    const heard = wire.splice(0).filter(({ subject }) => subjectKind(subject) !== "life.prove");
    for (const { data, subject } of heard) {
      stranger.publish(subject, data, { reply: "stranger.again" });
      stranger.publish(taskQuestion(node.id), data, { reply: "stranger.elsewhere" });
    }
    await stranger.flush();

    const told = await until("all of it to be dropped", async () => {
      const all = await Promise.all(metrics.map(refusals));
      const has = (key: string) => all.some((each) => (each.get(key) ?? 0) > 0);
      const kinds = busSubjects.map(({ kind }) => kind).filter((kind) => kind !== "life.prove");
      const reasons = kinds.map((kind) => `${kind} unsealed`);
      const wanted = [...reasons, "manager.beat replayed", "task.question replayed", "task.question forged"];
      const missing = wanted.filter((key) => !has(key));
      if (missing.length > 0) throw new Error(`not yet: ${missing.join(", ")}`);
      return all;
    });
    t.log(told.map((each) => Object.fromEntries(each)));
    for (const manager of managers) t.true(manager.process.isRunning, manager.process.output);
    t.false(existsSync(touched), "no command was run");
    t.is((await exec("echo", canary)).stdout.trim(), canary);
    await createService(follower, sleepers("after", 1));
    const lines = managers.flatMap(({ process }) => process.output.split("\n"));
    const drops = lines.filter((line) => line.includes("message on the bus dropped"));
    t.true(drops.length > 0 && drops.length < 200, `${drops.length} lines of the logs`);
    // The task's history names who requested the commands that did run.
    const history = await leader.muster("history", "task", task?.id ?? "");
    t.is(history.match(/TaskAccess\.Call exec/g)?.length, 2, history);
  });
}
