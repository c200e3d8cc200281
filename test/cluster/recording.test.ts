// A recording of real processes: made after something broke, opened when nothing runs any more.
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import {
  ActorFeed,
  Any,
  ExecSpec,
  GenericRuntimeSpec,
  InspectionService,
  ServiceSpec,
  TaskSpec,
  WatchActorsRequest,
} from "../../proto/gen/messages.ts";
import { partsOfFile } from "../../runtime/recording/format.ts";
import { createService, nodeCalled, runningTasks, sleepers, status } from "../fixtures/control-client.ts";
import { MusterProcess, runMuster, startAgent, startManager, tempDir, type Ran } from "../fixtures/muster.ts";
import { natsServer } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { inOrder } from "../support/recordings.ts";
import { connectPage, cookieIn, fetched } from "../support/page-client.ts";
import { patient } from "../support/slowness.ts";

const saidBy = ({ stdout, stderr }: Ran): string => `${stdout}\n${stderr}`;

function withEnvironment(spec: ServiceSpec, variable: string): ServiceSpec {
  const { task } = spec;
  const payload = task?.generic?.payload ?? null;
  if (task === null || payload === null) throw new Error("the service has no payload");
  const exec = ExecSpec.decode(payload.value);
  const value = ExecSpec.encode(ExecSpec.patch(exec, { env: [...exec.env, variable] }));
  const generic = GenericRuntimeSpec.create({ kind: "exec", payload: Any.patch(payload, { value }) });
  return ServiceSpec.patch(spec, { task: TaskSpec.patch(task, { generic }) });
}

async function isIn(file: string, text: string): Promise<boolean> {
  for await (const part of partsOfFile(inOrder([readFileSync(file)])))
    if (Buffer.from(part).includes(text)) return true;
  return false;
}

test.serial("the minutes before a problem are recorded by every process, and shown without the cluster", async (t) => {
  t.timeout(patient(300_000));
  const { server } = await natsServer(t);
  const nats = server.url.replace("//", `//${server.user}:${server.pass}@`);
  const leader = await startManager(t, { nats });
  const follower = await startManager(t, { nats, join: leader });
  const agent = await startAgent(t, follower, { hostname: "far" });
  const { managerId: home } = await status(leader);
  const { managerId: other } = await status(follower);
  const { id: node } = await nodeCalled(leader, "far");
  const secret = "canary-7c1f";
  const spec = sleepers("web", 1);
  await createService(leader, withEnvironment(spec, `PASSWORD=${secret}`));
  await until("a running task", async () => (await runningTasks(leader)).length === 1);
  const [task] = await runningTasks(leader);

  const folder = tempDir(t, "recording");
  const file = join(folder, "incident.mrec");
  const host = `unix://${join(leader.dataDir, "control.sock")}`;
  const recorded = await runMuster(["record", "--host", host, "-o", file]);
  t.is(recorded.code, 0, saidBy(recorded));
  t.regex(saidBy(recorded), new RegExp(`signed by manager ${home} of cluster`));
  t.regex(saidBy(recorded), /3 processes, [1-9]\d*/);
  t.notRegex(saidBy(recorded), /missing/);
  t.is(statSync(file).mode & 0o777, 0o600, "only its owner may read it");
  t.true(await isIn(file, `task/${task?.id}`));
  t.false(await isIn(file, secret), "the task's environment is not in it");
  const full = await runMuster(["record", "--host", host, "-o", "/dev/full/x"]);
  t.is(full.code, 1);
  t.regex(saidBy(full), /cannot write \/dev\/full\/x: /);

  for (const { process } of [agent, follower, leader]) await process.end();

  const verified = await runMuster(["replay", file, "--verify"]);
  t.is(verified.code, 0, saidBy(verified));
  t.regex(verified.stdout, /^session +\d+ +[1-9]/m);
  t.regex(verified.stdout, /^no difference in [1-9]\d* verified steps$/m);

  const replay = new MusterProcess(folder, ["replay", file, "--no-open"]);
  t.teardown(() => replay.end());
  await until("the printed address", () => {
    if (!replay.isRunning) throw new Error(replay.output);
    return replay.output.includes("?token=") && replay.output.includes("Ctrl-C");
  });
  const address = /http:\S+/.exec(replay.output)?.[0] ?? "";
  const base = address.replace(/\?.*/, "");
  const cookie = cookieIn(await fetched(address));
  t.regex((await fetched(base, { headers: { cookie } })).body, /<div id="app">/);
  const page = await connectPage(base, { cookie });
  page.send({
    call: 1,
    method: InspectionService.methods.Watch.path,
    message: WatchActorsRequest.encode(WatchActorsRequest.create()),
  });
  const feeds = (): ActorFeed[] =>
    page.received
      .filter(({ call, hasMessage }) => call === 1 && hasMessage)
      .map(({ message }) => ActorFeed.decode(message));
  await until("three processes", () => feeds().length === 3);
  const states = new Map(
    feeds().flatMap(({ process, snapshot }) =>
      (snapshot?.actors ?? []).map((actor): [string, string] => [`${process} ${actor.actor}`, actor.states.join(" ")]),
    ),
  );
  t.regex(states.get(`node-${node} agent-task/${task?.id}`) ?? "", /running/);
  t.regex(states.get(`manager-${other} session/${node}`) ?? "", /serving/);
  t.true(states.has(`manager-${home} ledger`));
  page.socket.close();

  const changed = join(folder, "changed.mrec");
  writeFileSync(changed, readFileSync(file).subarray(0, statSync(file).size / 2));
  const refused = await runMuster(["replay", changed, "--no-open"]);
  t.is(refused.code, 1);
  t.regex(saidBy(refused), /it is truncated/);
});
