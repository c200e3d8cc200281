// `service plan` and `service rebalance` from the command line, against a served manager.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test from "ava";
import {
  Endpoint,
  type Node,
  PlanRebalanceResponse,
  PlanServiceResponse,
  Task,
  TaskState,
  TaskStatus,
  Timestamp,
  type Service,
} from "../../proto/gen/messages.ts";
import { readyNode, served, type Served } from "../support/served.ts";

/** `web` with four tasks that have run on node1 for long, and an empty node2. */
async function lopsided({ manager, muster }: Served): Promise<Service> {
  const { env, store } = manager;
  const seconds = Math.floor(env.clock.now() / 1_000) - 3_600;
  const node = (id: string): Node => readyNode(id, id);
  manager.seed("node", node("node1"), node("node2"));
  await muster("service", "create", "-d", "--name", "web", "--replicas", "4", "nginx");
  const service = store.byName("service", "web") as Service;
  const status = TaskStatus.create({ state: TaskState.RUNNING, appliedAt: Timestamp.create({ seconds }) });
  const task = (slot: number): Task =>
    Task.create({
      id: `task${slot}`,
      serviceId: service.id,
      slot,
      nodeId: "node1",
      spec: service.spec?.task ?? null,
      specVersion: service.specVersion,
      endpoint: Endpoint.create({ spec: service.spec?.endpoint ?? null }),
      status,
      desiredState: TaskState.RUNNING,
    });
  manager.seed("task", task(1), task(2), task(3), task(4));
  return service;
}

test("service plan accepts the flags of service create and of service update, and changes nothing", async (t) => {
  const on = await served(t);
  const { manager, muster } = on;
  await lopsided(on);
  const { version } = manager.store;
  const create = await muster("service", "plan", "create", "--name", "api", "--replicas", "2", "nginx", "-g");
  t.is(create.lines[0], "api: 2 new, 0 replaced, 0 removed, 0 unchanged");
  t.true(
    create.lines.some((line) => /^at once\s+create\s+api\.1\s+node2\s+the service is new; node2: had 0/.test(line)),
  );
  const update = await muster("service", "plan", "update", "--image", "nginx:2", "--update-parallelism", "2", "web");
  t.is(update.lines[0], "web: 0 new, 4 replaced, 0 removed, 0 unchanged");
  t.true(update.lines.some((line) => /^2\s+replace\s+web\.3\s+node1\s+\S+\s+changed: container\.image/.test(line)));
  const scale = await muster("service", "plan", "scale", "web=5");
  t.true(scale.lines.some((line) => /^node2\s+0\s+1$/.test(line)));
  t.is(manager.store.version, version);
});

test("service plan reads a driver's configuration as service create and update do, and rejects what update rejects", async (t) => {
  const on = await served(t);
  await lopsided(on);
  const file = join(mkdtempSync(join(tmpdir(), "muster-plan-")), "config.yaml");
  t.teardown(() => rmSync(dirname(file), { recursive: true, force: true }));
  writeFileSync(file, "image: nginx\n");
  const asked = async (...args: string[]) => {
    const { lines, remarks } = await on.muster("service", "plan", ...args);
    return lines[0] ?? remarks[0] ?? "";
  };
  const driver = ["create", "--driver", "docker", "--driver-config"];
  t.is(await asked(...driver, `@${file}`, "--name", "api"), "api: 1 new, 0 replaced, 0 removed, 0 unchanged");
  t.is(await asked(...driver, '{"a":1}', "--name", "api"), "api: 1 new, 0 replaced, 0 removed, 0 unchanged");
  t.regex(await asked(...driver, "@/nowhere/config.yaml"), /cannot read \/nowhere\/config\.yaml/);
  t.regex(await asked(...driver, "{}", "word"), /unexpected argument "word"/);
  t.regex(await asked("create"), /the image is missing/);
  await on.muster("service", "create", "-d", "--name", "api", "--driver", "docker", "--driver-config", "a: 1");
  t.is(await asked("update", "--driver-config", `@${file}`, "api"), "api: 1 new, 0 replaced, 0 removed, 0 unchanged");
  t.regex(await asked("update", "--driver-config", "@/nowhere", "api"), /cannot read \/nowhere/);
  t.regex(await asked("update", "--rollback", "--replicas", "3", "web"), /not be combined with --rollback: --replicas/);
});

test("service plan shows what would wait, and prints one JSON object on request", async (t) => {
  const on = await served(t);
  const { muster } = on;
  await lopsided(on);
  const waits = await muster("service", "plan", "create", "--name", "big", "--constraint", "node.labels.a==b", "nginx");
  t.true(
    waits.lines.some((line) => /^1 task would stay pending: no suitable node \(.*not satisfied on 2 nodes/.test(line)),
  );
  t.true(waits.lines.some((line) => line.includes("node1: does not meet node.labels.a==b")));
  const { lines } = await muster("service", "plan", "scale", "--format", "json", "web=1");
  t.is(lines.length, 1);
  const plan = PlanServiceResponse.fromJson(JSON.parse(lines[0] ?? "") as object);
  t.like(plan, { removed: 3, kept: 1, name: "web" });
});

test("service plan rejects what the command would reject", async (t) => {
  const on = await served(t);
  const { muster } = on;
  await lopsided(on);
  t.is((await muster("service", "plan")).status, 125);
  t.is((await muster("service", "plan", "remove", "web")).status, 125);
  t.is((await muster("service", "plan", "create", "--name", "web", "nginx")).status, 1);
  t.is((await muster("service", "plan", "update", "--replicas", "x", "web")).status, 125);
  t.is((await muster("service", "plan", "rollback", "web")).status, 1);
  t.is((await muster("service", "plan", "--help")).status, 0);
});

test("service rebalance shows moves before they are made, and is switched by labels", async (t) => {
  const on = await served(t);
  const { manager, muster } = on;
  await lopsided(on);
  const dry = await muster("service", "rebalance", "--dry-run");
  t.is(dry.status, 0);
  t.regex(dry.lines[0] ?? "", /^rebalancing is off; 60 moves may still be made within/);
  t.is(dry.lines.filter((line) => /^\d\s+web\.\d\s+node1\s+node2\s+stop-first/.test(line)).length, 2);
  const { lines } = await muster("service", "rebalance", "--dry-run", "--format", "json", "web");
  t.is(PlanRebalanceResponse.fromJson(JSON.parse(lines[0] ?? "") as object).moves.length, 2);

  t.deepEqual((await muster("service", "rebalance", "--on", "web")).lines, ["web"]);
  const labels = () => manager.store.byName("service", "web")?.spec?.annotations?.labels;
  t.deepEqual(labels(), { "muster.rebalance": "on" });
  await muster("service", "rebalance", "--off", "web");
  t.deepEqual(labels(), { "muster.rebalance": "off" });
  t.is((await muster("service", "rebalance", "--on", "--settle", "90s", "--moves", "7")).status, 0);
  const [cluster] = manager.store.all("cluster");
  t.like(cluster?.spec?.annotations?.labels, {
    "muster.rebalance": "on",
    "muster.rebalance.settle": "90s",
    "muster.rebalance.moves": "7",
  });
  t.is((await muster("service", "rebalance", "--on", "--off")).status, 125);
  t.is((await muster("service", "rebalance", "--settle", "soon")).status, 125);
  t.is((await muster("service", "rebalance", "--moves", "3", "web")).status, 125);
});
