// A stack of three services from a Compose file, over real processes: deployed, deployed again, changed, removed.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { runningTasks } from "../fixtures/control-client.ts";
import { startAgent, startManager, tempDir } from "../fixtures/muster.ts";
import { taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const base = `
x-process: &process
  x-muster: {driver: exec}
  command: \${PROGRAM:-sleep} \${LENGTH:-600}
services:
  web:
    <<: *process
    depends_on: [db]
    environment: {SHOP_PART: web}
    deploy: {replicas: 2, update_config: {order: start-first, monitor: 1s}}
  db:
    <<: *process
    environment: {SHOP_PART: db}
    deploy: {update_config: {monitor: 1s}}
  each:
    <<: *process
    environment: {SHOP_PART: each}
    deploy: {mode: global, update_config: {monitor: 1s}}
`;
const more = "services: {web: {environment: {SHOP_PART: front}, deploy: {replicas: 3}}}\n";

test.serial(
  "three services of a Compose file run, stay untouched, change one at a time, and are removed",
  async (t) => {
    t.timeout(patient(300_000));
    const manager = await startManager(t);
    const one = await startAgent(t, manager, { hostname: "one" });
    const two = await startAgent(t, manager, { hostname: "two" });
    const folder = tempDir(t, "stack");
    const [compose, override] = [join(folder, "compose.yaml"), join(folder, "more.yaml")];
    writeFileSync(compose, base);
    writeFileSync(override, more);
    const ids = async (part: string): Promise<readonly string[]> => {
      const tasks = await runningTasks(manager);
      return tasks.filter(({ serviceAnnotations }) => serviceAnnotations?.name === `shop_${part}`).map(({ id }) => id);
    };

    // Without --detach: it runs when the command returns.
    const first = await manager.muster("stack", "deploy", "-c", compose, "shop");
    t.deepEqual(first.trim().split("\n"), [
      "Creating service shop_db",
      "Creating service shop_each",
      "Creating service shop_web",
    ]);
    t.deepEqual([(await ids("db")).length, (await ids("each")).length, (await ids("web")).length], [1, 2, 2]);
    const processes = (): number => [one, two].flatMap(({ dataDir }) => taskProcesses(dataDir)).length;
    t.is(processes(), 5);
    t.regex(await manager.muster("stack", "ls"), /^shop +3$/m);
    t.regex(await manager.muster("stack", "services", "shop"), /shop_web +replicated +2\/2/);
    t.is((await manager.muster("stack", "ps", "-q", "shop")).trim().split("\n").length, 5);

    const before = [await ids("db"), await ids("each"), await ids("web")];
    const second = await manager.muster("stack", "deploy", "-c", compose, "shop");
    t.regex(second, /^(?:Unchanged service shop_\w+ \(id: \w+\)(?:\n|$)){3}$/);
    t.deepEqual([await ids("db"), await ids("each"), await ids("web")], before);

    const third = await manager.muster("stack", "deploy", "-c", compose, "-c", override, "shop");
    t.regex(third, /^Updating service shop_web/m);
    t.deepEqual([await ids("db"), await ids("each")], before.slice(0, 2));
    const web = await ids("web");
    t.is(web.length, 3);
    t.false(web.some((id) => before[2]?.includes(id)));

    await manager.muster("stack", "rm", "shop");
    // Waits until no process of it runs.
    t.is(processes(), 0);
    t.is(await manager.muster("stack", "ls", "-q"), "");
    await until("all tasks of the stack to be removed", async () => (await runningTasks(manager)).length === 0);
  },
);
