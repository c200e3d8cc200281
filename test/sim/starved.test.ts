/**
 * Managers and agents on a starved machine: every callback takes many times its normal duration.
 *
 * S72: slowness creates no tasks: the total number of created tasks exceeds that of wanted ones by at most a twentieth.
 */
import test from "ava";
import { ControlService, CreateServiceRequest, NodeStatus_State, TaskState } from "../../proto/gen/messages.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";
import { simService } from "../../simulation/workloads/services.ts";

const tasksEach = 10;
/** Duration of the slow phase, in virtual milliseconds: from before the service is created until long after. */
const slowMs = 120_000;
/** A run takes about 50,000. */
const stepsMax = 400_000;
interface Starved {
  readonly seed: number;
  readonly managers: number;
  readonly agents: number;
  /** Duration of each callback of a manager, and of an agent, in milliseconds. */
  readonly managerMs: number;
  readonly agentMs: number;
}

function starved({ agents, managers, seed }: Starved) {
  const wanted = agents * tasksEach;
  const madeMax = Math.floor(wanted * 1.05);
  const made = new Set<string>();
  const follow = (replica: Replica, demand: (claim: string | null) => void): void => {
    replica.watch((commit) => {
      for (const change of commit.changes) {
        if (change.action === "remove") continue;
        if (change.table === "task") {
          made.add(change.object.id);
          if (made.size > madeMax) demand(`S72: ${made.size} tasks were created for ${wanted} wanted ones`);
        } else if (change.table === "node" && change.object.status?.state === NodeStatus_State.DOWN)
          demand(`S60: node ${change.object.description?.hostname ?? change.object.id} is declared DOWN`);
      }
    });
  };
  const world = new ScriptedWorld({ seed, managers, agents, steps: stepsMax, tasks: steadyTasks, onReplica: follow });
  const running = (): number => {
    let count = 0;
    for (const { status } of world.leader?.running?.store.all("task") ?? [])
      if (status?.state === TaskState.RUNNING) count += 1;
    return count;
  };
  return { world, made, running, wanted };
}

function create(world: ScriptedWorld, wanted: number): void {
  const spec = simService({ name: "web", replicas: wanted });
  const { CreateService } = ControlService.methods;
  world
    .dial()
    .unary(CreateService, CreateServiceRequest.create({ spec }), { timeoutMs: 600_000 })
    .catch((error: unknown) => world.scene.fail(String(error)));
}

for (const each of [
  // Both managers always have seconds of pending work, so they hardly hear each other.
  { title: "two managers and 100 agents", seed: 22, managers: 2, agents: 100, managerMs: 25, agentMs: 20 },
  // Agents whose heartbeats wait behind their starts and reports.
  { title: "200 agents", seed: 21, managers: 1, agents: 200, managerMs: 2, agentMs: 800 },
])
  test(`S72: starved for minutes, ${each.title} create no excess tasks, and all tasks run in the end`, async (t) => {
    t.timeout(600_000);
    const { world, made, running, wanted } = starved(each);
    await world.found();
    const processes = [...world.managers.processes, ...world.agents];
    for (const process of world.managers.processes) process.slow(each.managerMs);
    for (const agent of world.agents) agent.slow(each.agentMs);
    create(world, wanted);
    await world.pass(slowMs);
    for (const process of processes) process.slow(0);
    await world.pass(30_000);
    await world.until("all tasks to run", () => running() === wanted);
    t.is(made.size, wanted);
    t.true(world.areAllReady());
    t.is(world.scene.failure, null);
  });
