/**
 * Schedules follow the leader's wall clock.
 *
 * S137: each due time starts at most one run, however often the clock passes it. A clock that jumps forward past several due
 *       times starts the newest one, unless its missed-run window is over; the others count as missed. A clock that jumps back
 *       starts nothing until it passes the last handled due time.
 */
import test from "ava";
import { jobLabel } from "../../machines/orchestration/jobs/labels.ts";
import { readScheduleStatus } from "../../machines/orchestration/jobs/runs.ts";
import { ReplicatedJob, ScheduledRun_Outcome } from "../../proto/gen/messages.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { jobPayload } from "../../simulation/nodes/machine.ts";
import { ScriptedWorld, steadyTasks } from "./scripted.ts";
import { simService, simTask } from "../../simulation/workloads/services.ts";

const hourMs = 3_600_000;

/** A job that is due at each full hour. The first manager's clock starts at a quarter past. */
async function scheduled(options: { readonly seed: number; readonly managers: number; readonly window?: string }) {
  /** Due times of the created runs, with repetitions. */
  const made: string[] = [];
  const replicas = new Set<string>();
  const world = new ScriptedWorld({
    ...options,
    tasks: { ...steadyTasks, lifeMsMax: 500 },
    onReplica: (replica) =>
      replica.watch(({ changes, version }) => {
        for (const { action, object, table } of changes) {
          const due = table === "service" ? object.spec?.annotations?.labels[jobLabel.due] : undefined;
          if (due === undefined || action !== "create" || replicas.has(`${version}/${due}`)) continue;
          replicas.add(`${version}/${due}`);
          made.push(due);
        }
      }),
  });
  await world.found();
  const wallMs = () => world.scene.simulation.clock.now();
  const all = world.managers.all;
  for (const { process: each } of all) each.jumpClock(hourMs - (wallMs() % hourMs) + hourMs / 4);
  await world.until("a leader", () => world.leader !== undefined && world.managers.areServing);
  const labels: Record<string, string> = { [jobLabel.cron]: "0 * * * *", [jobLabel.history]: "100" };
  if (options.window !== undefined) labels[jobLabel.missedRunWindow] = options.window;
  const id = await world.create(
    simService({
      name: "hourly",
      labels,
      task: { generic: simTask(jobPayload) },
      replicatedJob: ReplicatedJob.create({ maxConcurrent: 1, totalCompletions: 1 }),
    }),
  );
  const missed = (): number => {
    const runs = readScheduleStatus(world.leader?.running?.store.get("resource", id))?.runs ?? [];
    return runs
      .filter(({ outcome }) => outcome === ScheduledRun_Outcome.OUTCOME_MISSED)
      .reduce((sum, { count }) => sum + count, 0);
  };
  /** Waits long enough for a term to end, the next one to begin, and due runs to start. */
  const settle = async (): Promise<void> => {
    await world.pass(15_000);
    await world.until("a leader", () => world.leader !== undefined);
  };
  await settle();
  return { world, made, missed, settle };
}

test("S137: a clock that jumps forward by hours starts one run and counts the others as missed", async (t) => {
  const { made, missed, settle, world } = await scheduled({ seed: 51, managers: 1 });
  t.deepEqual(made, []);
  (world.leader as SimManager).process.jumpClock(5 * hourMs);
  await settle();
  t.is(made.length, 1);
  t.is(missed(), 4);
});

test("S137: a clock that jumps past a missed-run window starts nothing", async (t) => {
  const { made, missed, settle, world } = await scheduled({ seed: 52, managers: 1, window: "10m" });
  (world.leader as SimManager).process.jumpClock(5 * hourMs);
  await settle();
  t.deepEqual(made, []);
  t.is(missed(), 5);
});

test("S137: a clock that jumps back and forward again starts nothing twice", async (t) => {
  const { made, settle, world } = await scheduled({ seed: 53, managers: 1 });
  const manager = world.leader as SimManager;
  manager.process.jumpClock(5 * hourMs);
  await settle();
  t.is(made.length, 1);
  for (const byMs of [-4 * hourMs, 2 * hourMs, 2 * hourMs]) {
    manager.process.jumpClock(byMs);
    await settle();
    t.is(made.length, 1, `after a jump by ${byMs / hourMs} h`);
  }
  manager.process.jumpClock(hourMs);
  await settle();
  t.is(made.length, 2, "the next full hour");
  t.is(new Set(made).size, 2);
});

test("S137: leaders whose clocks are hours apart start no run twice", async (t) => {
  const { made, settle, world } = await scheduled({ seed: 54, managers: 2 });
  (world.managers.all[1] as SimManager).process.jumpClock(3 * hourMs);
  await settle();
  const terms = new Set<SimManager>();
  for (let change = 0; change < 4; change += 1) {
    const before = world.leader as SimManager;
    before.process.crash();
    await world.until("another leader", () => world.leader !== undefined && world.leader !== before);
    terms.add(world.leader as SimManager);
    before.process.start();
    await settle();
    await world.until("both to serve", () => world.managers.areServing);
  }
  t.is(terms.size, 2);
  t.is(made.length, 1);
});
