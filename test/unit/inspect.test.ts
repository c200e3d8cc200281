// `muster inspect`: the table of actors, what its operands stand for, and its output in other formats.
import test, { type ExecutionContext } from "ava";
import {
  ActorFeed,
  Annotations,
  EngineDescription,
  Node,
  NodeDescription,
  PluginDescription,
  RecordingPart,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { until } from "../fixtures/until.ts";
import { actor, inspectedManager, snapshot, stepOf, timer, type InspectedManager } from "../support/inspection.ts";
import { readyNode } from "../support/served.ts";

const now = Date.parse("2026-03-04T05:06:07.089Z");
const session = "session/n1aaaaaaaaaaaaaaaaaaaaaaa";

function service(id: string, name: string): Service {
  return Service.create({
    id,
    spec: ServiceSpec.create({ annotations: Annotations.create({ name }), task: TaskSpec.create() }),
  });
}

/** Two managers and an agent. */
async function scene(t: ExecutionContext, columns: number | null = null): Promise<InspectedManager> {
  const screen = columns === null ? null : { columns, rows: 40, colours: false };
  const inspected = await inspectedManager(t, { now: () => now, screen });
  const { manager } = inspected;
  manager.seed(
    "node",
    readyNode("n1aaaaaaaaaaaaaaaaaaaaaaa", "worker-1"),
    readyNode("n2aaaaaaaaaaaaaaaaaaaaaaa", "worker-2"),
  );
  manager.seed("service", service("s1", "web"));
  const task = Task.create({
    id: "t1",
    serviceId: "s1",
    slot: 2,
    serviceAnnotations: Annotations.create({ name: "web" }),
  });
  manager.seed("task", task);
  const life = { startedAtMs: now - 60_000, sinceMs: now - 5_000, steps: 9, event: "x.happened" };
  inspected.scene.feeds = [
    snapshot(
      "manager-m1",
      [
        actor(session, "session", ["serving.connected"], life),
        actor("rollout/s1", "rollout", ["updating"], {
          ...life,
          timers: [timer("monitor", "updating", now - 30_000, now - 20_000)],
        }),
        actor("scheduler/m1", "scheduler", ["resting"], { ...life, timers: [timer("90", "resting", now, now + 90)] }),
      ],
      { hostname: "alpha", atMs: now },
    ),
    snapshot(
      "manager-m2",
      [
        actor("session/n2aaaaaaaaaaaaaaaaaaaaaaa", "session", ["suspect"], {
          ...life,
          timers: [timer("verdictDelay", "suspect", now - 30_000, now - 3_000)],
        }),
        actor("scheduler/m2", "scheduler", ["resting"], life),
      ],
      { hostname: "beta", atMs: now },
    ),
    snapshot("node-n1aaaaaaaaaaaaaaaaaaaaaaa", [actor("agent-task/t1", "agentTask", ["running"], life)], {
      hostname: "worker-1",
      atMs: now,
    }),
  ];
  return inspected;
}

const columnOf = (lines: readonly string[], at: number): readonly string[] =>
  lines.slice(1).map((line) => line.split(/ {3,}/)[at] ?? "");

test("the table has every actor of every process, the longest stuck on top, then by process", async (t) => {
  const { muster } = await scene(t);
  const { lines, status } = await muster("inspect");
  t.is(status, 0);
  t.regex(lines[0] ?? "", /^ACTOR +NAME +STATE +AGE +IN STATE +NEXT DEADLINE +HOST +PROCESS$/);
  t.deepEqual(columnOf(lines, 0), [
    "rollout/s1",
    "session/n2aaaaaaaaaaaaaaaaaaaaaaa",
    "scheduler/m1",
    session,
    "scheduler/m2",
    "agent-task/t1",
  ]);
  t.regex(lines[1] ?? "", /rollout\/s1 +web +updating +1m00s +5\.0s +STUCK: monitor overdue 20s +alpha +manager-m1$/);
  t.regex(lines[3] ?? "", /scheduler\/m1 +resting +1m00s +5\.0s +90ms in 0\.1s +alpha/);
  t.regex(lines[6] ?? "", /agent-task\/t1 +web\.2 +running/);
});

test("on a terminal, ids are cut to 12 characters unless --no-trunc is given", async (t) => {
  const { muster } = await scene(t, 130);
  const { lines } = await muster("inspect", "session");
  t.regex(lines[2] ?? "", /^session\/n1aaaaaaaaaa +worker-1 +serving\.connected .*alpha$/);
  t.true((await muster("inspect", "session", "--no-trunc")).lines[2]?.startsWith(session));
});

test("operands are kinds, charts, processes, hostnames, objects and actors; any of them matches", async (t) => {
  const { muster } = await scene(t);
  const ids = async (...args: readonly string[]): Promise<readonly string[]> =>
    (await muster("inspect", "--quiet", ...args)).lines.toSorted();
  t.deepEqual(await ids("scheduler"), ["scheduler/m1", "scheduler/m2"]);
  t.deepEqual(await ids("scheduler/"), ["scheduler/m1", "scheduler/m2"]);
  t.deepEqual(await ids("agentTask"), ["agent-task/t1"]);
  t.deepEqual(await ids("manager-m2"), ["scheduler/m2", "session/n2aaaaaaaaaaaaaaaaaaaaaaa"]);
  t.deepEqual(await ids("beta"), ["scheduler/m2", "session/n2aaaaaaaaaaaaaaaaaaaaaaa"]);
  t.deepEqual(await ids("web"), ["rollout/s1"]);
  t.deepEqual(await ids("worker-1"), ["agent-task/t1", session]);
  t.deepEqual(await ids("session/n1"), [session]);
  t.deepEqual(await ids("session/worker-2", "rollout/web"), ["rollout/s1", "session/n2aaaaaaaaaaaaaaaaaaaaaaa"]);
  t.deepEqual(await ids("agent-task/web.2"), ["agent-task/t1"]);
});

test("--process, --state and --stuck narrow the table", async (t) => {
  const { muster } = await scene(t);
  const ids = async (...args: readonly string[]): Promise<readonly string[]> =>
    (await muster("inspect", "--quiet", ...args)).lines;
  t.deepEqual(await ids("--stuck"), ["rollout/s1", "session/n2aaaaaaaaaaaaaaaaaaaaaaa"]);
  t.deepEqual(await ids("--stuck", "session"), ["session/n2aaaaaaaaaaaaaaaaaaaaaaa"]);
  t.deepEqual(await ids("--state", "connected"), [session]);
  t.deepEqual(await ids("--state", "serving.connected", "--state", "running"), [session, "agent-task/t1"]);
  t.deepEqual(await ids("--state", "serv"), []);
  const { remarks } = await muster("inspect", "--state", "servng", "--state", "updating", "session");
  t.deepEqual(remarks, [
    `note: no such actor is in state "servng": did you mean 'serving'?`,
    `note: no such actor is in state "updating"`,
  ]);
  t.deepEqual(await ids("--process", "m2", "--process", "worker-1"), [
    "session/n2aaaaaaaaaaaaaaaaaaaaaaa",
    "scheduler/m2",
    "agent-task/t1",
  ]);
});

test("templates and JSON have the actor's fields", async (t) => {
  const { muster } = await scene(t);
  const { lines } = await muster("inspect", "--format", "{{.Actor}} {{.State}} {{.Stuck}} {{.Process}}", "--stuck");
  t.deepEqual(lines, [
    "rollout/s1 updating true manager-m1",
    "session/n2aaaaaaaaaaaaaaaaaaaaaaa suspect true manager-m2",
  ]);
  const [json = ""] = (await muster("inspect", "rollout/web", "--format", "json")).lines;
  const object = JSON.parse(json) as Record<string, unknown>;
  t.like(object, {
    ID: "rollout/s1",
    Name: "web",
    Kind: "rollout",
    States: ["updating"],
    StartedAt: "2026-03-04T05:05:07.089Z",
    OverdueMs: 20_000,
    Status: "active",
  });
  t.deepEqual(object["Timers"], [
    { Delay: "monitor", State: "updating", ArmedAt: "2026-03-04T05:05:37.089Z", DueAt: "2026-03-04T05:05:47.089Z" },
  ]);
});

test("an actor without ids is drawn if it is the only one of its name, and listed if there are several", async (t) => {
  const { muster, scene: shown } = await scene(t);
  const ledger = actor("ledger", "ledger", ["following"]);
  shown.feeds = [snapshot("manager-m1", [ledger]), snapshot("manager-m2", [ledger])];
  t.is((await muster("inspect", "ledger")).lines.length, 3);
  t.is((await muster("inspect", "ledger", "--process", "m2")).lines[0], "ledger  in manager-m2 on host-of-manager-m2");
});

test("one actor is drawn with its chart and its recorded steps, asked of its process alone", async (t) => {
  const { muster, scene: shown, watches } = await scene(t);
  const step = stepOf(session, "session", 9, {
    atMs: now - 5_000,
    event: "heartbeat",
    states: ["serving.connected"],
    transitions: ["serving.disconnected#heartbeat#0"],
  });
  shown.recent = [
    RecordingPart.create({ feed: ActorFeed.create({ process: "manager-m1", sequence: 1, steps: [step] }) }),
  ];
  const { lines, status } = await muster("inspect", "session/worker-1");
  t.is(status, 0);
  t.is(lines[0], `${session}  worker-1  in manager-m1 on alpha`);
  t.true(lines.some((line) => line.startsWith("●   connected (initial)")));
  t.true(lines.some((line) => line.startsWith("▶     heartbeat → serving.connected")));
  t.is(lines.at(-1), "  05:06:02.089  heartbeat  → serving.connected");
  t.deepEqual(watches[0]?.selection?.actors, ["session/"]);
  shown.recent = new RpcError(Status.UNIMPLEMENTED, "");
  const without = await muster("inspect", "session/worker-1");
  t.true(without.lines.includes("  earlier ones are unknown: the manager keeps no recording"));
});

test("an operand that is nothing gets a suggestion, and an ambiguous one its candidates", async (t) => {
  const { muster, scene: shown } = await scene(t);
  const remark = async (...args: readonly string[]): Promise<string> => {
    const { remarks, status } = await muster("inspect", ...args);
    t.is(status, 1);
    return remarks.join("\n");
  };
  t.is(
    await remark("sesion/worker-1"),
    `muster: no actor of kind "sesion" is running: did you mean 'session'? see 'muster inspect'`,
  );
  t.is(
    await remark("session/worker-3"),
    `muster: actor "session/worker-3" not found: did you mean 'session/worker-1' or 'session/worker-2'? see 'muster inspect session'`,
  );
  t.regex(await remark("schedular"), /no actor, kind, process or object "schedular": did you mean 'scheduler'\?/);
  t.regex(await remark("--process", "alfa"), /process "alfa" not found: did you mean 'alpha'\?/);
  t.is(
    await remark("session/n"),
    [
      `muster: "session/n" is ambiguous: give more of the id:`,
      `  ${session} (worker-1) in manager-m1 on alpha`,
      "  session/n2aaaaaaaaaaaaaaaaaaaaaaa (worker-2) in manager-m2 on beta",
    ].join("\n"),
  );
  const twin = snapshot("manager-m3", [actor(session, "session", ["adopted"])], { hostname: "gamma" });
  shown.feeds = [...shown.feeds, twin];
  t.is(
    await remark("session/worker-1"),
    [
      `muster: "session/worker-1" is ambiguous: choose one with --process:`,
      `  ${session} (worker-1) in manager-m1 on alpha`,
      `  ${session} (worker-1) in manager-m3 on gamma`,
    ].join("\n"),
  );
  t.is((await muster("inspect", "session/worker-1", "--process", "gamma")).lines[1], "state     adopted");
});

test("a process that cannot be watched is named, and nothing of it counts as stuck", async (t) => {
  const { muster, scene: shown } = await scene(t);
  const lost = ActorFeed.create({ process: "manager-m2", lost: "no answer within 5 s", hostname: "beta" });
  shown.feeds = [...shown.feeds, lost];
  const { lines, remarks, status } = await muster("inspect", "--stuck", "--quiet");
  t.is(status, 0);
  t.deepEqual(lines, ["rollout/s1"]);
  t.deepEqual((await muster("inspect")).remarks, ["note: manager-m2 on beta cannot be watched: no answer within 5 s"]);
  t.deepEqual(remarks, ["note: manager-m2 on beta cannot be watched: no answer within 5 s"]);
});

test("a manager or agent that should answer and does not is named", async (t) => {
  const { muster, manager } = await scene(t);
  const agent = NodeDescription.create({
    hostname: "worker-3",
    engine: EngineDescription.create({ plugins: [PluginDescription.create({ type: "Driver", name: "exec" })] }),
  });
  manager.seed("node", Node.patch(readyNode("n3", ""), { description: agent }));
  const { remarks, lines } = await muster("inspect");
  t.is(lines.length, 7);
  t.deepEqual(remarks, ["note: node-n3 on worker-3 has not answered"]);
});

test("a listing waits for an agent that answers late", async (t) => {
  const { start, scene: shown, send, manager, watches } = await scene(t);
  const agent = NodeDescription.create({
    hostname: "worker-1",
    engine: EngineDescription.create({ plugins: [PluginDescription.create({ type: "Driver", name: "exec" })] }),
  });
  manager.seed("node", Node.patch(readyNode("n1aaaaaaaaaaaaaaaaaaaaaaa", ""), { description: agent }));
  const late = shown.feeds.at(-1) as ActorFeed;
  shown.feeds = shown.feeds.slice(0, -1);
  const { done } = start("inspect", "--quiet", "agent-task");
  await until("the command to watch", () => watches.length === 1);
  // Longer than the command waits when nobody is missing.
  setTimeout(() => send(late), 1_000);
  t.deepEqual((await done).lines, ["agent-task/t1"]);
});

test("flags that contradict each other and a refusal by the manager give one sentence", async (t) => {
  const { muster, scene: shown } = await scene(t);
  t.deepEqual((await muster("inspect", "-f", "-q")).remarks, [
    "muster: --follow and --quiet are mutually exclusive: set one of them",
  ]);
  t.is((await muster("inspect", "-f", "--format", "table {{.Actor}}")).status, 125);
  t.is((await muster("inspect", "--format", "yaml")).status, 125);
  shown.refusal = new RpcError(Status.PERMISSION_DENIED, "user ada may not watch actors");
  t.deepEqual((await muster("inspect")).remarks, ["muster: user ada may not watch actors"]);
});

test("completion knows actors, and processes with their hostnames", async (t) => {
  const { muster } = await scene(t);
  const words = async (...args: readonly string[]): Promise<readonly string[]> =>
    (await muster("completion", "words", "--", "inspect", ...args)).lines;
  t.deepEqual(await words("sess"), [session, "session/n2aaaaaaaaaaaaaaaaaaaaaaa"]);
  t.deepEqual(await words("--process", "manager-"), ["manager-m1", "manager-m2"]);
  t.deepEqual(await words("--process", "work"), ["worker-1"]);
});
