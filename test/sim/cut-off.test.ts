/** Nodes that are cut off from all managers: what their services do meanwhile, and when they return. */
import test from "ava";
import { disconnectLabel } from "../../machines/orchestration/on-disconnect.ts";
import { isRunning, isWanted } from "../../machines/task.ts";
import { NodeStatus_State, type Task } from "../../proto/gen/messages.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { simService } from "../../simulation/workloads/services.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";

const away = "a2";
const partMs = 20_000;

const services: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  kept: { [disconnectLabel.mode]: "keep" },
  late: { [disconnectLabel.after]: "60s" },
  quick: {},
};

/** Seeds differ in delays and in the order of what happens at the same time. */
for (const seed of [1, 2])
  test(`a node that is cut off while the leader changes keeps or loses its tasks as each service says (seed ${seed})`, async (t) => {
    t.timeout(120_000);
    const world = new ScriptedWorld({ seed, managers: 2, agents: 2, tasks: steadyTasks });
    await world.found();
    const ids = new Map<string, string>();
    for (const [name, labels] of Object.entries(services))
      ids.set(name, await world.create(simService({ name, labels, replicas: 4 })));
    const tasksOf = (name: string): readonly Task[] => [
      ...((world.leader as SimManager).running?.store.tasksByService(ids.get(name) as string) ?? []),
    ];
    const awayId = () => world.leader?.running?.store.byName("node", away)?.id;
    const wantedOn = (name: string): readonly string[] =>
      tasksOf(name)
        .filter((task) => task.nodeId === awayId() && isWanted(task))
        .map(({ id }) => id)
        .toSorted();
    const areRunning = () =>
      world.leader !== undefined &&
      [...ids.keys()].every((name) => tasksOf(name).filter((task) => isRunning(task) && isWanted(task)).length === 4);
    await world.until("all tasks to run", areRunning);
    const before = new Map([...ids.keys()].map((name) => [name, wantedOn(name)]));
    for (const tasks of before.values()) t.is(tasks.length, 2);

    for (const { process } of world.managers.all) world.cut(process.name, away);
    const isDown = () => world.leader?.running?.store.byName("node", away)?.status?.state === NodeStatus_State.DOWN;
    await world.until("the node to be DOWN", isDown);
    await world.pass(partMs);
    (world.leader as SimManager).process.crash();
    await world.until("another leader", () => world.leader !== undefined);
    await world.pass(partMs);
    t.deepEqual(wantedOn("quick"), []);
    for (const name of ["kept", "late"]) t.deepEqual(wantedOn(name), before.get(name));
    await world.pass(2 * partMs);
    t.deepEqual(wantedOn("late"), []);
    t.deepEqual(wantedOn("kept"), before.get("kept"));
    t.is(world.running(away).length, 6, "the node itself runs everything that it had");

    for (const { process } of world.managers.all) world.heal(process.name, away);
    const onlyKept = () => world.running(away).toSorted().join(" ") === before.get("kept")?.join(" ");
    await world.until("the node to go on with what was kept, and to stop the rest", () => areRunning() && onlyKept());
    t.is(tasksOf("kept").length, 4, "no task was replaced");
  });
