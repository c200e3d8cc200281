/**
 * Durations in a cluster whose managers' wall clocks jump, or are hours apart, while the leader changes.
 *
 * S134: a restart delay has its length, whoever leads and whatever the clocks show: it never ends early, and is late by at
 *       most the duration of a change of leader.
 * S135: through changes of leader between managers whose clocks are hours apart, a rollout without failures completes, and one
 *       with a failed slot is paused.
 * S136: rebalancing waits as long as its settings say when the leader's clock jumps.
 */
import test from "ava";
import { rebalanceLabels } from "../../machines/orchestration/rebalancing/settings.ts";
import { isSpent, observedState } from "../../machines/task.ts";
import type { ServiceSpec } from "../../proto/gen/messages.ts";
import {
  Duration,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  TaskState,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateStatus_UpdateState,
  type Service,
} from "../../proto/gen/messages.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";
import { simService, simTask, updatedAgain } from "../../simulation/workloads/services.ts";
import { refusedPayload } from "../../simulation/workloads/rollout.ts";

const hourMs = 3_600_000;
const delayMs = 20_000;
/** Time to notice a leader's end, elect another one, and reconnect the node. */
const changeOfLeaderMs = 15_000;
const { COMPLETED, PAUSED, UPDATING } = UpdateStatus_UpdateState;

interface ServiceOptions {
  readonly payload?: number;
  readonly replicas?: number;
  readonly condition?: RestartPolicy_RestartCondition;
  readonly labels?: Record<string, string>;
  /** Delay between the steps of an update, in seconds. */
  readonly pauseS?: number;
}

function specOf({ condition, labels, pauseS, payload, replicas }: ServiceOptions): ServiceSpec {
  return simService({
    name: "web",
    labels: labels ?? {},
    task: {
      generic: simTask(payload),
      restart: RestartPolicy.create({
        condition: condition ?? RestartPolicy_RestartCondition.ANY,
        delay: Duration.create({ seconds: delayMs / 1_000 }),
      }),
    },
    replicas: replicas ?? 1,
    update: UpdateConfig.create({
      parallelism: 1,
      delay: Duration.create({ seconds: pauseS ?? 0 }),
      monitor: Duration.create({ seconds: 3 }),
      failureAction: UpdateConfig_FailureAction.PAUSE,
    }),
  });
}

class World extends ScriptedWorld {
  /** The service in the leader's replica, or in another manager's if there is no leader. */
  get service(): Service | undefined {
    const managers = [this.leader, ...this.managers.all];
    const store = managers.find((each) => each?.running != null)?.running?.store;
    return store?.byName("service", "web");
  }

  get elapsedMs(): number {
    return this.scene.simulation.clock.elapsed;
  }

  async serve(options: ServiceOptions): Promise<void> {
    await this.create(specOf(options));
  }

  async updateTo(options: ServiceOptions): Promise<void> {
    await this.update(this.service?.id ?? "", updatedAgain(specOf(options)));
  }

  get state(): UpdateStatus_UpdateState | undefined {
    return this.service?.updateStatus?.state;
  }

  /** Ends the leader's process, and restarts it when another manager leads. Returns the new leader. */
  async changeLeader(): Promise<SimManager> {
    const before = this.leader as SimManager;
    before.process.crash();
    await this.until("another leader", () => this.leader !== undefined && this.leader !== before);
    before.process.start();
    return this.leader as SimManager;
  }

  /** Sets one manager's clock, and waits until the cluster has settled. */
  async setApart(byMs: number): Promise<void> {
    (this.managers.all[1] as SimManager).process.jumpClock(byMs);
    await this.until("a leader", () => this.leader !== undefined && this.managers.areServing && this.areAllReady());
  }
}

/** A service whose task fails again and again. `next` resolves when the next failure is in the log, in virtual time. */
async function failing(options: { readonly seed: number; readonly managers: number; readonly apartMs: number }) {
  const world = new World({ ...options, tasks: { ...steadyTasks, failure: 1, lifeMsMax: 200 } });
  await world.found();
  if (options.apartMs !== 0) await world.setApart(options.apartMs);
  const seen = new Set<string>();
  const news = (): readonly string[] => {
    const found: string[] = [];
    for (const { running } of world.managers.all)
      for (const task of running?.store.tasksByService(world.service?.id ?? "") ?? [])
        if (isSpent(observedState(task)) && !seen.has(task.id)) found.push(task.id);
    return found;
  };
  const next = async (): Promise<number> => {
    await world.until("an end", () => news().length > 0);
    for (const id of news()) seen.add(id);
    return world.elapsedMs;
  };
  await world.serve({});
  await next();
  return { world, next };
}

for (const byMs of [hourMs, 12 * hourMs, -12 * hourMs])
  test(`S134: a restart delay keeps its length when a clock jumps by ${byMs / hourMs} h`, async (t) => {
    const { next, world } = await failing({ seed: 41, managers: 1, apartMs: 0 });
    const manager = world.leader as SimManager;
    let beforeMs = await next();
    for (let set = 0; set < 2; set += 1) {
      await world.pass(3_000);
      manager.process.jumpClock(byMs);
      const atMs = await next();
      t.true(atMs - beforeMs >= delayMs, `${atMs - beforeMs} ms`);
      t.true(atMs - beforeMs <= delayMs + changeOfLeaderMs, `${atMs - beforeMs} ms`);
      beforeMs = atMs;
    }
  });

for (const apartMs of [6 * hourMs, -6 * hourMs])
  test(`S134: a restart delay keeps its length when a manager whose clock is off by ${apartMs / hourMs} h takes over`, async (t) => {
    const { next, world } = await failing({ seed: 42, managers: 2, apartMs });
    let beforeMs = await next();
    for (let change = 0; change < 4; change += 1) {
      await world.pass(3_000);
      await world.changeLeader();
      const atMs = await next();
      t.true(atMs - beforeMs >= delayMs, `after change ${change + 1}: ${atMs - beforeMs} ms`);
      t.true(atMs - beforeMs <= delayMs + changeOfLeaderMs, `after change ${change + 1}: ${atMs - beforeMs} ms`);
      await world.until("both to serve", () => world.managers.areServing);
      beforeMs = await next();
    }
  });

for (const apartMs of [6 * hourMs, -6 * hourMs]) {
  test(`S135: an update continues through changes of leader between clocks that are ${apartMs / hourMs} h apart`, async (t) => {
    const world = new World({ seed: 43, managers: 2, agents: 2, tasks: steadyTasks });
    await world.found();
    await world.setApart(apartMs);
    await world.serve({ replicas: 4 });
    await world.until("four tasks", () => world.running("a1").length + world.running("a2").length === 4);
    await world.updateTo({ replicas: 4, pauseS: 20 });
    const leaders = new Set<SimManager>();
    for (let change = 0; change < 4; change += 1) {
      await world.pass(2_000);
      t.is(world.state, UPDATING);
      leaders.add(await world.changeLeader());
      await world.until("both to serve", () => world.managers.areServing);
    }
    t.is(leaders.size, 2);
    await world.until("the end of the update", () => world.state !== UPDATING);
    t.is(world.state, COMPLETED);
    await world.until("all nodes to be READY", () => world.leader !== undefined && world.areAllReady());
  });

  test(`S135: a failure reported to a manager whose clock is ${apartMs / hourMs} h off counts for the next leader`, async (t) => {
    let counted = 0;
    for (const seed of [44, 45, 46]) {
      const world = new World({ seed, managers: 2, tasks: steadyTasks });
      await world.found();
      await world.setApart(apartMs);
      const never = { condition: RestartPolicy_RestartCondition.NONE };
      await world.serve(never);
      await world.until("a task", () => world.running("a1").length === 1);
      const other = world.managers.all.find((each) => each !== world.leader) as SimManager;
      world.cut("a1", (world.leader as SimManager).process.name);
      await world.until("the node to have moved", () => world.home(other) === other && world.areAllReady());
      await world.updateTo({ ...never, payload: refusedPayload });
      const store = () => other.running?.store;
      const hasFailed = (): boolean =>
        [...(store()?.tasksByService(world.service?.id ?? "") ?? [])].some(
          (task) => observedState(task) === TaskState.FAILED,
        );
      await world.until("the failure", hasFailed);
      (world.leader as SimManager | undefined)?.process.crash();
      // If the old leader stored its count before it ended, the next one has nothing to count.
      if ((store()?.get("rollout", world.service?.id ?? "")?.failures ?? 0) === 0) counted += 1;
      await world.until("the other to lead", () => world.leader === other);
      await world.until("the end of the update", () => world.state !== UPDATING);
      t.is(world.state, PAUSED, `seed ${seed}`);
    }
    t.true(counted > 0, "the next leader had to count");
  });
}

for (const byMs of [hourMs, -12 * hourMs])
  test(`S136: no task moves sooner when a clock jumps by ${byMs / hourMs} h`, async (t) => {
    const world = new World({ seed: 47, managers: 1, agents: 1, tasks: steadyTasks });
    await world.found();
    await world.serve({ replicas: 4, labels: { [rebalanceLabels.mode]: "on" } });
    await world.until("four tasks", () => world.running("a1").length === 4);
    world.addAgent("a2");
    await world.until("the second node", () => world.agents.length === 2 && world.areAllReady());
    const fromMs = world.elapsedMs;
    for (let set = 0; set < 3; set += 1) {
      await world.pass(5_000);
      (world.leader as SimManager | undefined)?.process.jumpClock(byMs);
      await world.until("a leader", () => world.leader !== undefined);
    }
    // The default: five minutes without an incident; a node that joins is one.
    const quietMs = 300_000;
    while (world.elapsedMs < fromMs + quietMs - 10_000) {
      t.is(world.running("a2").length, 0, `after ${world.elapsedMs - fromMs} ms`);
      await world.pass(1_000);
    }
    await world.until("a task to move", () => world.running("a2").length > 0);
    t.true(world.elapsedMs - fromMs >= quietMs);
  });
