import test, { type ExecutionContext } from "ava";
import { UsageError } from "../../lib/user-error.ts";
import { parseMoment } from "../../cli/moment.ts";
import { selectorOf, type Names } from "../../cli/watch-filters.ts";
import { NodeRole, SelectBy, TaskState } from "../../proto/gen/messages.ts";
import { readyNode, served, taskOf, type Ran } from "../support/served.ts";

/** Runs `muster watch` until it has printed this many lines; output on standard error ends it too. */
async function watched(
  world: Awaited<ReturnType<typeof served>>,
  lines: number,
  ...args: readonly string[]
): Promise<readonly string[]> {
  const seen: string[] = [];
  const enough = Promise.withResolvers<void>();
  void world
    .musterWith(
      (line) => {
        seen.push(line);
        if (seen.length >= lines) enough.resolve();
      },
      "watch",
      ...args,
    )
    .then(() => enough.resolve());
  await enough.promise;
  return seen;
}

/** A test's log answers by the manager's clock. */
async function ticking(t: ExecutionContext): ReturnType<typeof served> {
  const world = await served(t);
  const timer = setInterval(() => world.manager.clock.advance(1), 2);
  t.teardown(() => clearInterval(timer));
  return world;
}

async function refused(t: ExecutionContext, ...args: readonly string[]): Promise<Ran> {
  const { muster } = await served(t);
  return muster("watch", ...args);
}

test("watch prints all changes after a version, each with its version", async (t) => {
  const world = await ticking(t);
  const { manager, muster } = world;
  await muster("service", "create", "-d", "--name", "web", "bb:1");
  const from = manager.store.version;
  const service = manager.store.byName("service", "web");
  if (service === undefined) throw new Error("no service");
  manager.seed("node", readyNode("n1", "alpha"));
  manager.seed("task", taskOf(service, 1, "n1", TaskState.RUNNING));
  manager.seed("task", taskOf(service, 2, "n2", TaskState.RUNNING));
  const all = await watched(world, 3, "task", "node", "--from", String(from));
  t.deepEqual(
    all.map((line) => line.split(" ").filter((_, at) => at !== 1)),
    [
      [`${from + 1}`, "node", "create", "n1", "alpha", "ready"],
      ...[1, 2].map((slot) => {
        const { id, nodeId } = taskOf(service, slot, `n${slot}`, TaskState.RUNNING);
        const name = `web.${slot}.${id}`;
        return [`${from + 1 + slot}`, "task", "create", id, name, "Running", "(desired", "Running)", "on", nodeId];
      }),
    ],
  );
  const one = await watched(
    world,
    1,
    "task",
    "-f",
    "service=web",
    "-f",
    "slot=web.2",
    "--action",
    "create,remove",
    "--from",
    "0",
    "--format",
    "json",
    "--old",
  );
  t.like(JSON.parse(one[0] ?? ""), { version: from + 3, kind: "task", action: "create", object: { slot: 2 } });
});

test("watch resumes from a time, and from a relative time", async (t) => {
  const world = await ticking(t);
  const { manager } = world;
  manager.seed("node", readyNode("n1", "alpha"));
  manager.clock.advance(60_000);
  const between = new Date(manager.clock.now() - 30_000).toISOString();
  manager.seed("node", readyNode("n2", "beta"));
  t.regex((await watched(world, 1, "node", "--from", between))[0] ?? "", / node create n2 beta ready$/);
  t.regex((await watched(world, 1, "node", "--from", "45s"))[0] ?? "", / node create n2 beta ready$/);
  const lines = await watched(world, 2, "node", "--from", "2h");
  t.regex(lines[1] ?? "", / n1 alpha /);
});

test("watch prints the manager's errors, and reports what it cannot parse", async (t) => {
  const selector = await refused(t, "node", "--filter", "service=x");
  t.deepEqual(selector.remarks, [
    'service "x" not found: using "x" as its id',
    "muster: selector service_id does not apply to objects of kind node",
  ]);
  t.is(selector.status, 1);
  t.regex((await refused(t, "nodes")).remarks[0] ?? "", /unknown kind 'nodes'/);
  t.is((await refused(t)).status, 125);
  t.is((await refused(t, "task", "--action", "delete")).status, 125);
  const future = await refused(t, "task", "--from", "4711");
  t.regex(future.remarks[0] ?? "", /versions are out of order: version 4711 does not exist yet/);
  const later = await refused(t, "task", "--from", "2099-01-01T00:00:00Z");
  t.regex(later.remarks[0] ?? "", /2099-01-01T00:00:00Z is in the future: it is \d{4}-/);
});

const names: Names = { id: (noun, text) => Promise.resolve(`${noun}/${text}`) };

test("filters are written as their selectors", async (t) => {
  const fields = async (filter: string) => SelectBy.toJson(await selectorOf(filter, names));
  t.deepEqual(await fields("id-prefix=ab"), { idPrefix: "ab" });
  t.deepEqual(await fields("name=a=b"), { name: "a=b" });
  t.deepEqual(await fields("index=team:a:b"), { custom: { index: "team", value: "a:b" } });
  t.deepEqual(await fields("slot=a.b.3"), { slot: { serviceId: "service/a.b", slot: 3 } });
  t.is((await selectorOf("desired-state=running", names)).desiredState, TaskState.RUNNING);
  t.is((await selectorOf("role=Manager", names)).role, NodeRole.MANAGER);
  for (const [key, field] of Object.entries({
    network: "referencedNetworkId",
    secret: "referencedSecretId",
    config: "referencedConfigId",
  })) {
    t.deepEqual(await fields(`${key}=x`), { [field]: `${key}/x` });
  }
  for (const wrong of ["name", "=x", "constructor=x", "role=king", "slot=web", "index=team"]) {
    await t.throwsAsync(selectorOf(wrong, names), { instanceOf: UsageError }, wrong);
  }
});

test("a moment is a version, a time or a relative time", (t) => {
  const now = Date.UTC(2026, 0, 1, 12);
  t.deepEqual(parseMoment("17", now), { version: 17 });
  t.like(parseMoment("2026-01-01T11:00:00.5Z", now), { time: { seconds: now / 1_000 - 3_600, nanos: 5e8 } });
  t.like(parseMoment("1h30m", now), { time: { seconds: now / 1_000 - 5_400, nanos: 0 } });
  for (const wrong of ["", "yesterday", "-5", "2026-99-99", "5 m", "1.5"]) {
    t.throws(() => parseMoment(wrong, now), { instanceOf: UsageError }, wrong);
  }
});
