// A recording of real processes: made after something broke, opened when nothing runs any more.
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { recordedBackend } from "../../cli/replay/recorded-backend.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import {
  ActorFeed,
  Annotations,
  Any,
  ConfigSpec,
  ContainerSpec,
  ContainerSpec_PullOptions,
  ControlService,
  CreateConfigRequest,
  CreateNetworkRequest,
  CreateSecretRequest,
  Driver,
  ExecSpec,
  GenericRuntimeSpec,
  InspectionService,
  ListServicesRequest,
  ListTasksRequest,
  NetworkSpec,
  OperatorService,
  ReplicatedService,
  SecretSpec,
  ServiceSpec,
  TaskSpec,
  TaskState,
  WatchActorsRequest,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { partsOfFile } from "../../runtime/recording/format.ts";
import { openRecording } from "../../runtime/recording/opened.ts";
import { ask, createService, nodeCalled, runningTasks, sleepers, status, tasks } from "../fixtures/control-client.ts";
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

/** The parts of a recording as one text, with each byte as a character. */
async function contentsOf(file: string): Promise<string> {
  const parts: string[] = [];
  for await (const part of partsOfFile(inOrder([readFileSync(file)]))) parts.push(Buffer.from(part).toString("latin1"));
  return parts.join("\n");
}

test.serial("the cluster's objects of an incident are shown without the cluster, and no secret of it", async (t) => {
  t.timeout(patient(300_000));
  const canary = "canary-3be8";
  const bytes = Buffer.from(canary);
  const manager = await startManager(t);
  await manager.patience();
  const agent = await startAgent(t, manager, { hostname: "far" });
  const { CreateConfig, CreateNetwork, CreateSecret, ListServices, ListTasks } = ControlService.methods;
  const named = (name: string): Annotations => Annotations.create({ name, labels: { [`${canary}.key`]: canary } });
  await ask(
    manager,
    CreateSecret,
    CreateSecretRequest.create({ spec: SecretSpec.create({ annotations: named("key"), data: bytes }) }),
  );
  await ask(
    manager,
    CreateConfig,
    CreateConfigRequest.create({ spec: ConfigSpec.create({ annotations: named("settings"), data: bytes }) }),
  );
  const driverConfig = Driver.create({ name: "overlay", options: { password: canary } });
  const networkSpec = NetworkSpec.create({ annotations: named("front"), driverConfig });
  await ask(manager, CreateNetwork, CreateNetworkRequest.create({ spec: networkSpec }));
  const container = ContainerSpec.create({
    image: "registry.example/shop:1",
    args: [canary],
    env: [`PASSWORD=${canary}`],
    pullOptions: ContainerSpec_PullOptions.create({ registryAuth: canary }),
  });
  await createService(
    manager,
    ServiceSpec.create({
      annotations: named("shop"),
      replicated: ReplicatedService.create({ replicas: 0 }),
      task: TaskSpec.create({ container, logDriver: Driver.create({ name: "syslog", options: { token: canary } }) }),
    }),
  );
  await manager.muster("swarm", "update", "--autolock");
  const secrets = [
    await manager.muster("token", "worker"),
    await manager.muster("token", "manager"),
    await manager.muster("swarm", "unlock-key", "--quiet"),
  ].map((each) => each.trim());
  t.true(
    secrets.every((each) => /^SWM(?:TKN|KEY)-1-/.test(each)),
    secrets.join(" "),
  );

  const before = Date.now();
  await createService(manager, withEnvironment(sleepers("web", 1), `PASSWORD=${canary}`));
  await until("a running task", async () => (await runningTasks(manager)).length === 1);
  const one = Date.now();
  await manager.muster("service", "scale", "--detach", "web=2");
  await until("two running tasks", async () => (await runningTasks(manager)).length === 2);
  const two = Date.now();
  await manager.muster("service", "rm", "web");
  await until("no tasks", async () => (await tasks(manager)).length === 0);
  const after = Date.now();

  const folder = tempDir(t, "recording");
  const file = join(folder, "incident.mrec");
  const host = `unix://${join(manager.dataDir, "control.sock")}`;
  const recorded = await runMuster(["record", "--host", host, "--since", "10m", "-o", file]);
  t.is(recorded.code, 0, saidBy(recorded));
  t.regex(saidBy(recorded), /[1-9]\d* transactions/);
  t.notRegex(saidBy(recorded), /missing|no cluster objects/);
  for (const { process } of [agent, manager]) await process.end();

  const contents = await contentsOf(file);
  t.true(contents.includes("registry.example/shop:1"), "an image may be seen");
  for (const secret of [canary, "SWMTKN-", "SWMKEY-", "PRIVATE KEY", ...secrets])
    t.false(contents.includes(secret), secret);
  const unlockKey = Buffer.from(secrets[2]?.replace("SWMKEY-1-", "") ?? "", "base64");
  t.true(unlockKey.length >= 32);
  t.false(contents.includes(unlockKey.toString("latin1")), "the unlock key's bytes");

  const { call } = recordedBackend(await openRecording(inOrder([readFileSync(file)]), { isForced: false }));
  async function at<Request, Response>(
    atMs: number,
    method: MethodDescriptor<Request, Response>,
    request: Request,
  ): Promise<Response> {
    const wrapped = { time: timestampOf(atMs), method: method.path, request: method.request.encode(request) };
    const { ReadAt } = OperatorService.methods;
    const answers: Uint8Array[] = [];
    const write = (message: Uint8Array): null => (answers.push(message), null);
    const context = { signal: new AbortController().signal, traceparent: "" };
    await call(ReadAt.path, ReadAt.request.encode(ReadAt.request.create(wrapped)), { write }, context);
    return method.response.decode(ReadAt.response.decode(answers[0] as Uint8Array).response);
  }
  const namesAt = async (atMs: number): Promise<readonly string[]> =>
    (await at(atMs, ListServices, ListServicesRequest.create())).services
      .map(({ spec }) => spec?.annotations?.name ?? "")
      .toSorted();
  const runningAt = async (atMs: number): Promise<number> =>
    (await at(atMs, ListTasks, ListTasksRequest.create())).tasks.filter(
      ({ status: found }) => found?.state === TaskState.RUNNING,
    ).length;
  t.deepEqual(await namesAt(before), ["shop"]);
  t.deepEqual(await namesAt(one), ["shop", "web"]);
  t.is(await runningAt(before), 0);
  t.is(await runningAt(one), 1);
  t.is(await runningAt(two), 2);
  t.deepEqual(await namesAt(after), ["shop"]);
  t.is(await runningAt(after), 0);
  t.is(await runningAt(one), 1, "and back");
});

const rootTest = process.getuid?.() === 0 ? test.serial : test.serial.skip;

rootTest(
  "a recording that a full disk cannot hold leaves the earlier file, and says how much is missing",
  async (t) => {
    t.timeout(patient(120_000));
    const manager = await startManager(t);
    const folder = tempDir(t, "full");
    const file = join(folder, "incident.mrec");
    // Its own mount namespace, which ends with the shell: two pages, of which the earlier file has one.
    const script = [
      'folder=$1; shift; mount -t tmpfs -o size=8k tmpfs "$folder" || exit 9',
      'printf earlier > "$folder/incident.mrec"',
      '"$@"; code=$?; ls "$folder"; cat "$folder/incident.mrec"; exit $code',
    ].join("\n");
    const full = await runMuster(["record", "--host", `unix://${join(manager.dataDir, "control.sock")}`, "-o", file], {
      wrap: ["unshare", "-m", "sh", "-c", script, "sh", folder],
    });
    t.is(full.code, 1, saidBy(full));
    t.regex(
      full.stderr,
      /cannot write \S+incident\.mrec: the disk is full: the recording has \d+\.\d MiB, 0\.0 MiB are free/,
    );
    t.deepEqual(full.stdout.split("\n"), ["incident.mrec", "earlier"], "neither a part of the new file nor its name");
  },
);
