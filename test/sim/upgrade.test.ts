// A rolling upgrade of three managers, of which the older version knows a lower level of the log's format.
import test from "ava";
import { formatId, knownLevel, levelOf } from "../../proto/format-level.ts";
import { Annotations, ContainerSpec, ReplicatedService, ServiceSpec, TaskSpec } from "../../proto/gen/messages.ts";
import { checkFormat } from "../../simulation/invariants/format.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { olderVersion, ScriptedWorld } from "./scripted.ts";

const current = { isOlder: false, level: knownLevel };
const service = (name: string) =>
  ServiceSpec.create({
    annotations: Annotations.create({ name }),
    task: TaskSpec.create({ container: ContainerSpec.create({ image: "nginx" }) }),
    replicated: ReplicatedService.create({ replicas: 0 }),
  });

test("the level is raised when the last manager is upgraded, and an older one then stops before it reads on", async (t) => {
  t.timeout(120_000);
  for (let seed = 1; seed <= 5; seed += 1) {
    const world = new ScriptedWorld({
      seed,
      managers: 3,
      older: true,
      onReplica: (replica, demand) =>
        void replica.watch((commit) => demand(checkFormat(commit, replica, () => undefined))),
    });
    await world.found();
    const [m1, m2, m3] = world.managers.all as [SimManager, SimManager, SimManager];
    const levels = () => world.managers.all.map(({ running }) => levelOf(running?.store.get("format", formatId)));
    const listed = (manager: SimManager): number => {
      const { store } = world.leader?.running ?? {};
      return store?.get("manager", store.byName("node", manager.process.name)?.id ?? "")?.level ?? 0;
    };
    const runAs = async (manager: SimManager, version: typeof current): Promise<void> => {
      world.managers.setVersion(manager.process, version);
      manager.process.restart();
      await world.until(
        "the version to be listed",
        () => world.managers.areServing && listed(manager) === version.level,
      );
    };
    let created = 0;
    const write = async (): Promise<void> => {
      await world.until("a leader", () => world.leader !== undefined);
      created += 1;
      await world.create(service(`s${created}`));
    };

    for (const [manager, version] of [
      [m1, current],
      [m2, current],
      [m1, olderVersion],
      [m3, current],
    ] as const) {
      await runAs(manager, version);
      await write();
      await world.pass(5_000);
      t.deepEqual(levels(), [1, 1, 1], `seed ${seed}`);
    }
    await runAs(m1, current);
    await world.until("the level", () => levels().every((level) => level === knownLevel));
    await write();

    world.managers.setVersion(m2.process, olderVersion);
    m2.process.restart();
    await world.until("its refusal", () => (world.scene.simulation.trace.marks.get("manager.refused.level") ?? 0) > 2);
    t.not(m2.running?.isServing(), true);
    await write();
    world.managers.setVersion(m2.process, current);
    await world.until("it to serve", () => world.managers.areServing);
    await world.until("all services everywhere", () =>
      world.managers.all.every(({ running }) => running?.store.count("service") === created),
    );
  }
});
