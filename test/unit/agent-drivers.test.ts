// A node's driver plugins as its manager sees them: one whose executable is missing when the agent restarts while its tasks
// run, and one whose fingerprint changes.
import test from "ava";
import { unreachableMsMax } from "../../actors/agent/tasks.ts";
import { Any, DriverSpec, GenericRuntimeSpec, TaskSpec, TaskState } from "../../proto/gen/messages.ts";
import { driverKind, SimDrivers } from "../../simulation/nodes/drivers.ts";
import { task, World } from "./agent-world.ts";

const spec = TaskSpec.create({
  generic: GenericRuntimeSpec.create({
    kind: driverKind,
    payload: Any.create({
      type_url: "muster/muster.v1.DriverSpec",
      value: DriverSpec.encode(DriverSpec.create({ config: "{}" })),
    }),
  }),
});

/** Interval at which a session checks the description, as in machines/agent/session.machine.ts. */
const lookMs = 20_000;

const calm = {
  dieAtLaunch: 0,
  dieBeforeStart: 0,
  dieAfterStart: 0,
  endsByItself: 0,
  refuses: 0,
  unwell: 0,
  pluginCrashMs: 0,
  pluginHang: 0,
  takenAway: 0,
  networkFailure: 0,
};

/** An agent with a task on its plugin, killed and restarted without the plugin's executable. */
async function withoutPlugin(options: { readonly isPluginAlive: boolean }) {
  const world = new World();
  const { clock, random, trace } = world.simulation;
  const drivers = new SimDrivers(clock, random.fork("drivers"), trace, calm, null);
  let isHere = true;
  world.plugins = (of) => ({ ...drivers.plugins(of), ...(isHere ? {} : { binaries: [] }) });
  await world.serving();
  world.assignAll(task("t1", { spec }));
  await world.until(() => world.statesOf("t1").includes(TaskState.RUNNING));
  world.node.crash();
  isHere = false;
  if (!options.isPluginAlive) drivers.machine.killPlugins();
  const before = world.streams.length;
  world.node.start();
  await world.until(() => world.streams.length > before);
  world.assignAll(task("t1", { spec }));
  await world.pass(20_000);
  return { world, drivers, putBack: () => (isHere = true) };
}

test("a task whose driver was removed continues and is stopped through its process, and the node reports what is missing", async (t) => {
  const { drivers, world } = await withoutPlugin({ isPluginAlive: true });
  t.deepEqual(drivers.running(), ["t1"]);
  t.is(world.statesOf("t1").at(-1), TaskState.RUNNING);
  const { engine } = world.sessions.at(-1)?.request.description ?? {};
  t.is(engine?.labels[`muster.driver.${driverKind}.health`], "removed");
  t.false(engine?.plugins.some(({ name }) => name === driverKind));
  world.assignAll(task("t1", { spec, desiredState: TaskState.SHUTDOWN }));
  await world.until(() => world.statesOf("t1").at(-1) === TaskState.SHUTDOWN);
  t.deepEqual(drivers.running(), []);
});

test("a task whose driver does not answer counts as running, and is stopped once the driver is restored", async (t) => {
  const { drivers, putBack, world } = await withoutPlugin({ isPluginAlive: false });
  t.is(world.statesOf("t1").at(-1), TaskState.RUNNING);
  world.assignAll(task("t1", { spec, desiredState: TaskState.SHUTDOWN }));
  await world.pass(60_000);
  t.is(world.statesOf("t1").at(-1), TaskState.RUNNING);
  t.deepEqual(drivers.running(), ["t1"]);
  world.node.crash();
  putBack();
  const before = world.streams.length;
  world.node.start();
  await world.until(() => world.streams.length > before);
  world.assignAll(task("t1", { spec, desiredState: TaskState.SHUTDOWN }));
  await world.until(() => world.statesOf("t1").at(-1) === TaskState.SHUTDOWN);
  t.deepEqual(drivers.running(), []);
});

test("an agent that must stop everything abandons a task whose driver never serves, and a later agent finds it", async (t) => {
  const { drivers, putBack, world } = await withoutPlugin({ isPluginAlive: false });
  void world.agent.shutdown(true);
  await world.pass(unreachableMsMax - 5_000);
  t.not(world.agent.state().kind, "stopped");
  await world.until(() => world.agent.state().kind === "stopped");
  t.deepEqual(drivers.running(), ["t1"]);
  world.node.crash();
  putBack();
  world.node.start();
  await world.until(() => world.agent.tasks().some(({ state }) => state === TaskState.RUNNING));
  await world.pass(20_000);
  void world.agent.shutdown(true);
  await world.until(() => world.agent.state().kind === "stopped");
  t.deepEqual(drivers.running(), []);
});

test("an agent stopped while it still reads its data leaves no plugin process behind", async (t) => {
  for (let ms = 0; ms < 30; ms++) {
    const world = new World();
    const { clock, random, trace } = world.simulation;
    const drivers = new SimDrivers(clock, random.fork("drivers"), trace, calm, null);
    world.plugins = drivers.plugins.bind(drivers);
    world.readMs = 5;
    world.node.start();
    await world.pass(ms);
    void world.agent.shutdown(true);
    await world.until(() => world.agent.state().kind === "stopped");
    for (let after = 0; after < 30; after++) {
      t.is(
        drivers.machine.livePlugins,
        0,
        `${after} ms after the end of an agent that was told to stop after ${ms} ms`,
      );
      await world.pass(1);
    }
  }
});

test("the process of a removed plugin without tasks is ended", async (t) => {
  const world = new World();
  const { clock, random, trace } = world.simulation;
  const drivers = new SimDrivers(clock, random.fork("drivers"), trace, calm, null);
  let isHere = true;
  world.plugins = (of) => ({ ...drivers.plugins(of), ...(isHere ? {} : { binaries: [] }) });
  await world.serving();
  await world.until(() => drivers.machine.livePlugins === 1);
  await world.pass(1_000);
  world.node.crash();
  isHere = false;
  world.node.start();
  await world.until(() => drivers.machine.livePlugins === 0);
  t.deepEqual(
    world.node.disk.names().filter((name) => name.startsWith("driver-kind.")),
    [],
  );
});

test("changes of a driver's fingerprint reach the manager during the session, however many there are", async (t) => {
  const world = new World();
  const { clock, random, trace } = world.simulation;
  const drivers = new SimDrivers(clock, random.fork("drivers"), trace, calm, null);
  world.plugins = (of) => drivers.plugins(of);
  await world.serving();
  const before = world.sessions.length;
  const told = () => world.sessions.at(-1)?.request.description?.engine?.labels["driver.said"];
  for (let number = 1; number <= 100; number += 1) {
    drivers.machine.say(String(number));
    await world.pass(1_000);
  }
  await world.pass(lookMs + 1_000);
  t.is(told(), "100");
  const most = 121_000 / lookMs;
  t.true(world.sessions.length - before <= most, `${world.sessions.length - before} sessions`);
});
