import test, { type ExecutionContext } from "ava";
import {
  NodeStatus_State,
  Secret,
  SecretSpec,
  Annotations,
  TaskState,
  NodeStatus,
  Node,
} from "../../proto/gen/messages.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { readyNode, served, taskOf } from "../support/served.ts";

/** A test's log answers by the manager's clock. */
async function ticking(t: ExecutionContext): ReturnType<typeof served> {
  const world = await served(t);
  const timer = setInterval(() => world.manager.clock.advance(1), 1);
  t.teardown(() => clearInterval(timer));
  return world;
}

type World = Awaited<ReturnType<typeof served>>;

const reads: readonly (readonly string[])[] = [
  ["node", "ls"],
  ["node", "ps", "n1"],
  ["node", "inspect", "n1"],
  ["service", "ls"],
  ["service", "ps", "web"],
  ["service", "inspect", "web"],
  ["service", "inspect", "--pretty", "web"],
  ["network", "ls"],
  ["network", "inspect", "ingress"],
  ["task", "ls"],
  ["secret", "ls"],
  ["secret", "inspect", "key"],
  ["config", "ls"],
  ["stack", "ls"],
  ["stack", "ps", "shop"],
  ["stack", "services", "shop"],
  ["service", "rollout", "status", "web"],
  ["volume", "ls"],
  ["cluster", "inspect", "default"],
  ["job", "ls"],
  ["why", "n1"],
];

/** Everything that commands show now. */
async function shown({ muster }: World, ...more: readonly string[]): Promise<unknown> {
  const outputs: unknown[] = [];
  for (const [noun = "", ...rest] of reads) {
    const { status, lines, remarks } = await muster(noun, ...rest, ...more);
    outputs.push([noun, ...rest, status, lines, more.length === 0 ? remarks : remarks.slice(1)]);
  }
  return outputs;
}

async function cluster(t: ExecutionContext): Promise<World> {
  const world = await ticking(t);
  const { manager, muster } = world;
  manager.seed("node", readyNode("n1", "alpha"), readyNode("n2", "beta"));
  t.is((await muster("service", "create", "-d", "--name", "web", "--replicas", "2", "bb:1")).status, 0);
  const service = manager.store.byName("service", "web");
  if (service === undefined) throw new Error("no service");
  manager.seed("task", taskOf(service, 1, "n1", TaskState.RUNNING), taskOf(service, 2, "n2", TaskState.RUNNING));
  const annotations = Annotations.create({ name: "key" });
  manager.seed(
    "secret",
    Secret.create({ id: "s1", spec: SecretSpec.create({ annotations, data: Buffer.from("canary!") }) }),
  );
  return world;
}

test("every reading command with --at shows what it showed then", async (t) => {
  const world = await cluster(t);
  const { manager, muster } = world;
  const { version } = manager.store;
  const before = await shown(world);
  const then = new Date(manager.clock.now()).toISOString();
  t.is((await muster("service", "update", "-d", "--image", "bb:2", "--label-add", "a=b", "web")).status, 0);
  manager.seed(
    "node",
    Node.patch(readyNode("n1", "alpha"), { status: NodeStatus.create({ state: NodeStatus_State.DOWN }) }),
  );
  manager.drop("task", taskOf(manager.store.byName("service", "web") as never, 1, "n1", TaskState.RUNNING).id);
  t.is((await muster("secret", "rm", "key")).status, 0);
  t.is((await muster("service", "rm", "web")).status, 0);
  t.notDeepEqual(await shown(world), before);
  const past = await shown(world, "--at", String(version));
  t.deepEqual(past, before);
  t.false(JSON.stringify(past).includes(Buffer.from("canary!").toString("base64")));
  t.deepEqual(await shown(world, "--at", then), before);
});

test("output of the past states its time, and an unavailable time is explained", async (t) => {
  const world = await cluster(t);
  const { manager, muster, retained } = world;
  const { version } = manager.store;
  const now = await muster("service", "ls", "--at", String(version));
  t.regex(now.remarks[0] ?? "", new RegExp(`^as of version ${version}, written at \\d{4}-.*Z$`));
  const refused = async (at: string, expected: RegExp, status = 1): Promise<void> => {
    const ran = await muster("service", "ls", "--at", at);
    t.is(ran.status, status, at);
    t.regex(ran.remarks.join("\n"), expected, at);
    t.deepEqual(ran.lines, []);
  };
  await refused(String(version + 1), new RegExp(`version ${version + 1} does not exist yet \\(newest: ${version}\\)`));
  await refused("2099-01-01T00:00:00Z", /2099-01-01T00:00:00.* is in the future: it is \d{4}-/);
  await refused("yesterday", /expected a version, a time such as/, 125);
  retained.stored.set(snapshotName(version), manager.store.snapshot());
  manager.seed("node", readyNode("n3", "gamma"));
  retained.first = version + 1;
  await refused(
    "1",
    new RegExp(`version 1 is older than the retained history \\(oldest: version ${version}, of \\d{4}-`),
  );
  await refused("2020-01-01T00:00:00Z", /that time is before the retained history \(oldest: version \d+, of \d{4}/);
});

test("commands that change something or follow do not accept --at, and the past cannot be changed", async (t) => {
  const { muster } = await cluster(t);
  t.is((await muster("service", "rm", "--at", "3", "web")).status, 125);
  t.is((await muster("service", "create", "--at", "3", "bb:1")).status, 125);
  t.regex((await muster("service", "ls", "--help")).lines.join("\n"), /--at VERSION\|TIME/);
  t.false((await muster("service", "rm", "--help")).lines.join("\n").includes("--at "));
  const paused = await muster("service", "rollout", "pause", "web", "--at", "5");
  t.is(paused.status, 1);
  t.regex(paused.remarks.join("\n"), /cannot change a rollout at an earlier version/);
});
