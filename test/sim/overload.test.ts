/**
 * A manager that is ten times too slow for its agents, or for their connections, for minutes.
 *
 * S142: overload costs no running task: no node is declared DOWN, no task is created, and each task that ran still runs.
 * S143: a minute after the overload, all nodes are READY and all managers healthy.
 */
import test, { type ExecutionContext } from "ava";
import { NodeStatus_State, TaskState } from "../../proto/gen/messages.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { simService } from "../../simulation/workloads/services.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";

/** As many as a test can afford: 5,000 need several minutes to get their tasks. */
const agents = 1_000;
/** Duration of each callback of the manager, in milliseconds: with 3, it can just serve the heartbeats of these agents. */
const callbackMs = 30;
const overloadMs = 300_000;
const settleMs = 60_000;
/** A run takes about 500,000. */
const stepsMax = 2_000_000;
/** Agents that lose their connections at the same time. */
const returning = 100;
/** Duration of each of their handshakes, in milliseconds: together more than twenty times what an agent waits for its own. */
const handshakeMs = 1_200;
/** Longer than agents wait for the answer to a heartbeat. */
const pauseMs = 6_000;

/** A cluster in which each agent has a task that runs; from `overload` on, S142 applies. */
async function steady({ agents, seed }: { readonly agents: number; readonly seed: number }) {
  const wanted = agents;
  const made = new Set<string>();
  let isOverloaded = false;
  const follow = (replica: Replica, demand: (claim: string | null) => void): void => {
    replica.watch((commit) => {
      for (const { action, object, old, table } of commit.changes) {
        if (table === "task") {
          if (action === "create") made.add(object.id);
          if (made.size > wanted) demand(`S142: ${made.size} tasks were created for ${wanted} wanted ones`);
          const ran = old?.status?.state === TaskState.RUNNING;
          if (isOverloaded && ran && (action === "remove" || object.status?.state !== TaskState.RUNNING))
            demand(`S142: task ${object.id} no longer runs`);
        } else if (table === "node" && action !== "remove" && object.status?.state === NodeStatus_State.DOWN)
          demand(`S142: node ${object.description?.hostname ?? object.id} is declared DOWN`);
      }
    });
  };
  const world = new ScriptedWorld({
    seed,
    managers: 1,
    agents,
    steps: stepsMax,
    tasks: steadyTasks,
    onReplica: follow,
  });
  await world.found();
  await world.create(simService({ name: "web", replicas: wanted }));
  const running = (): number => {
    let count = 0;
    for (const { status } of world.leader?.running?.store.all("task") ?? [])
      if (status?.state === TaskState.RUNNING) count += 1;
    return count;
  };
  await world.until("all tasks to run", () => running() === wanted);
  const [manager] = world.managers.processes;
  if (manager === undefined) throw new Error("no manager");
  return {
    world,
    manager,
    overload: () => void (isOverloaded = true),
    settles(t: ExecutionContext) {
      t.is(running(), wanted, "S142");
      t.true(world.areAllReady(), "S143");
      t.true(
        world.managers.all.every((each) => each.running?.unhealthy() === null),
        "S143",
      );
      t.is(world.scene.failure, null);
    },
  };
}

test("S142, S143: five minutes of a manager that is ten times too slow cost no running task, and a minute later it has settled", async (t) => {
  t.timeout(600_000);
  const { world, manager, overload, settles } = await steady({ seed: 31, agents });
  overload();
  manager.slow(callbackMs);
  await world.pass(overloadMs);
  manager.slow(0);
  await world.pass(settleMs);
  settles(t);
});

test("S142, S143: nodes that wait for minutes for the handshakes of their connections are not taken for dead", async (t) => {
  t.timeout(600_000);
  const { world, manager, overload, settles } = await steady({ seed: 32, agents: returning });
  overload();
  manager.slowHandshakes(handshakeMs);
  manager.pause(pauseMs);
  await world.pass(overloadMs);
  manager.slowHandshakes(0);
  await world.pass(settleMs);
  settles(t);
});
