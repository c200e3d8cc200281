// The actors of driver plugins and their tasks on a simulated machine, through deaths of plugins and of the agent.
import test from "ava";
import { DriverPluginActor, knownPlugin, type DriverPluginPorts } from "../../actors/driver/plugin.ts";
import { DriverTaskActor, driverTaskRecord, driverTaskRecords } from "../../actors/driver/task.ts";
import type { DriverTaskNews } from "../../machines/driver/task.machine.ts";
import { NomadDriverConfig, TaskConfig } from "../../proto/gen/nomad.ts";
import type { ObservedStep } from "../../runtime/observation/step.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { DriverMachine, type MachineHabits } from "../../simulation/nodes/driver-machine.ts";

const calm: MachineHabits = { dieAtLaunch: 0, dieBeforeStart: 0, dieAfterStart: 0, endsByItself: 0, refuses: 0 };

/** One life of an agent: its plugin and its assigned tasks. */
class Life {
  readonly plugin: DriverPluginActor;
  readonly tasks = new Map<string, DriverTaskActor>();
  readonly #ports: DriverPluginPorts;
  readonly #onNews: (id: string, news: DriverTaskNews) => void;

  private constructor(
    ports: DriverPluginPorts,
    known: Awaited<ReturnType<typeof knownPlugin>>,
    onNews: (id: string, news: DriverTaskNews) => void,
  ) {
    this.#ports = ports;
    this.#onNews = onNews;
    this.plugin = new DriverPluginActor(
      ports,
      {
        binary: { name: "sim", path: "/sim", args: [], env: {}, autoMtls: false },
        config: null,
        agent: NomadDriverConfig.create(),
        onNews: () => {},
        onFingerprint: () => {},
        onTaskEvent: () => {},
      },
      known,
    );
  }

  static async begin(ports: DriverPluginPorts, onNews: (id: string, news: DriverTaskNews) => void): Promise<Life> {
    return new Life(ports, await knownPlugin(ports.disk, "sim"), onNews);
  }

  /** New, or with an earlier life's leftovers. */
  async take(id: string): Promise<void> {
    const record = await driverTaskRecord(this.#ports.disk, id);
    const options = { config: TaskConfig.create({ id }), plugin: this.plugin, record };
    this.tasks.set(id, new DriverTaskActor(this.#ports, { ...options, onNews: (news) => this.#onNews(id, news) }));
  }
}

test("every step of a task's actor belongs to the trace of its task, also those that the plugin's answers lead to", async (t) => {
  const clock = new SimClock();
  const { ports } = new DriverMachine(clock, new SimRandom("traced"), calm).life();
  const life = await Life.begin(ports, () => {});
  const steps: ObservedStep[] = [];
  const observing = ports.host.observe((step) => steps.push(step));
  t.teardown(() => observing.unsubscribe());
  const traceparent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
  const config = TaskConfig.create({ id: "a/b/1" });
  new DriverTaskActor(ports, { config, plugin: life.plugin, record: null, traceparent, onNews: () => {} });
  await clock.run({ untilMs: clock.now() + 1_000 });
  const own = steps.filter(({ id }) => id === "driver-task/a/b/1");
  t.true(own.some(({ event }) => event.type === "task.started"));
  t.true(own.every(({ cause }) => cause.traceparent === traceparent));
  t.is(own.find(({ event }) => event.type === "task.started")?.cause.call, "plugin");
});

test("a task runs, is stopped and forgotten", async (t) => {
  const clock = new SimClock();
  const machine = new DriverMachine(clock, new SimRandom("calm"), calm);
  const heard: string[] = [];
  const { ports } = machine.life();
  const life = await Life.begin(ports, (_id, { kind }) => heard.push(kind));
  await life.take("a/b/1");
  await clock.run({ untilMs: clock.now() + 1_000 });
  t.true(machine.tasks.get("a/b/1")?.isAlive);
  t.true(life.plugin.isHealthy);
  life.tasks.get("a/b/1")?.stopTask("SIGTERM", 5_000);
  await clock.run({ untilMs: clock.now() + 1_000 });
  life.tasks.get("a/b/1")?.destroy();
  await clock.run({ untilMs: clock.now() + 1_000 });
  t.deepEqual(heard, ["waiting", "running", "stopping", "exited", "destroyed"]);
  t.deepEqual(
    [...machine.disk.keys()].filter((name) => name.startsWith(driverTaskRecords)),
    [],
  );
  const ended = life.plugin.end();
  await clock.run({ untilMs: clock.now() + 5_000 });
  await ended;
  t.is(machine.livePlugins, 0);
  t.is(machine.disk.size, 0);
});

test("T5: a start that hangs does not delay a stop, and its late result is destroyed", async (t) => {
  const clock = new SimClock();
  const machine = new DriverMachine(clock, new SimRandom("hangs"), { ...calm, hangs: 1 });
  const heard: string[] = [];
  const { ports } = machine.life();
  const life = await Life.begin(ports, (_id, { kind }) => heard.push(kind));
  await life.take("a/b/1");
  await clock.run({ untilMs: clock.now() + 1_000 });
  life.tasks.get("a/b/1")?.stopTask("SIGTERM", 1_000);
  await clock.run({ untilMs: clock.now() + 20_000 });
  t.deepEqual(heard, ["waiting", "waiting", "failed"]);
  life.tasks.get("a/b/1")?.destroy();
  await clock.run({ untilMs: clock.now() + 100_000 });
  t.is(machine.tasks.get("a/b/1")?.starts, 1, "it did start after all");
  t.false(machine.tasks.get("a/b/1")?.isAlive);
  t.deepEqual(
    [...machine.disk.keys()].filter((name) => name.startsWith(driverTaskRecords)),
    [],
  );
});

test("D3: a killed agent recovers its plugin and its task, and configures nothing twice", async (t) => {
  const clock = new SimClock();
  const machine = new DriverMachine(clock, new SimRandom("again"), calm);
  const first = machine.life();
  const life = await Life.begin(first.ports, () => {});
  await life.take("a/b/1");
  await clock.run({ untilMs: clock.now() + 1_000 });
  first.kill();
  const heard: string[] = [];
  const next = await Life.begin(machine.life().ports, (_id, { kind }) => heard.push(kind));
  await next.take("a/b/1");
  await clock.run({ untilMs: clock.now() + 1_000 });
  t.deepEqual(heard, ["waiting", "running"]);
  t.is(machine.launches, 1);
  t.is(next.tasks.get("a/b/1")?.address, "a/b/1", "the driver's answer from the start");
  t.is(machine.configurations, 1);
  t.is(machine.tasks.get("a/b/1")?.starts, 1);
});

test("T1: whatever dies, no task starts twice, each ends once per life, and nothing is left in the end", async (t) => {
  // Keeps the claim from being vacuous: events that must have happened.
  const seen = { failed: 0, exited: 0, recovered: 0 };
  for (let seed = 0; seed < 30; seed += 1) {
    const clock = new SimClock();
    const random = new SimRandom(`driver-${seed}`);
    const habits: MachineHabits = {
      dieAtLaunch: 0.3 * random.next(),
      dieBeforeStart: 0.3 * random.next(),
      dieAfterStart: 0.3 * random.next(),
      endsByItself: random.next(),
      refuses: 0.3 * random.next(),
    };
    const machine = new DriverMachine(clock, random.fork("machine"), habits);
    const ids = Array.from({ length: 6 }, (_, at) => `alloc/task/${at}`);
    let ends = new Map<string, number>();
    const runs = new Map<string, number>();
    const destroyed = new Set<string>();
    const onNews = (id: string, news: DriverTaskNews): void => {
      if (news.kind === "exited" || news.kind === "failed") {
        ends.set(id, (ends.get(id) ?? 0) + 1);
        seen[news.kind] += 1;
      }
      if (news.kind === "running") runs.set(id, (runs.get(id) ?? 0) + 1);
      if (news.kind === "destroyed") destroyed.add(id);
    };
    let now = machine.life();
    let life = await Life.begin(now.ports, onNews);
    for (const id of ids) await life.take(id);
    for (let step = 0; step < 15; step += 1) {
      await clock.run({ untilMs: clock.now() + random.below(20_000) });
      const die = random.next();
      if (die < 0.3) machine.killPlugins();
      else if (die < 0.5) {
        now.kill();
        // As after a session's end: its reports are repeated to the next one.
        t.true(
          [...ends.values()].every((count) => count === 1),
          `seed ${seed}: ${JSON.stringify([...ends])}`,
        );
        const over = new Set(ends.keys());
        ends = new Map();
        now = machine.life();
        life = await Life.begin(now.ports, onNews);
        for (const id of ids) if (!destroyed.has(id) && !over.has(id)) await life.take(id);
        for (const id of over) {
          if (destroyed.has(id)) continue;
          await life.take(id);
          life.tasks.get(id)?.stopTask("", 0);
        }
      } else if (die < 0.6) life.tasks.get(ids[random.below(ids.length)] as string)?.stopTask("SIGTERM", 3_000);
      t.true(machine.livePlugins <= 1, `D1: seed ${seed}`);
      t.is(machine.doubleStarts, 0, `T1: seed ${seed}`);
    }
    machine.heal();
    for (const task of life.tasks.values()) task.stopTask("SIGTERM", 3_000);
    await clock.run({ untilMs: clock.now() + 600_000 });
    for (const task of life.tasks.values()) task.destroy();
    await clock.run({ untilMs: clock.now() + 600_000 });
    t.is(machine.doubleStarts, 0, `T1: seed ${seed}`);
    for (const [id, { isAlive }] of machine.tasks) t.false(isAlive, `seed ${seed}: ${id} still runs`);
    t.deepEqual(
      [...machine.disk.keys()].filter((name) => name.startsWith(driverTaskRecords)),
      [],
      `seed ${seed}`,
    );
    now.kill();
    for (const count of runs.values()) if (count > 1) seen.recovered += 1;
  }
  t.true(seen.failed > 10 && seen.exited > 50 && seen.recovered > 20, JSON.stringify(seen));
});
