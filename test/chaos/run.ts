/**
 * One run: each fault is drawn, injected, held and healed; then the cluster gets time to recover, and everything is checked.
 * Kinds are drawn like cards: each comes once before any repeats.
 */
import { SimRandom } from "../../runtime/sim/random.ts";
import { isAlive, taskProcesses, type TaskProcess } from "../fixtures/processes.ts";
import { churn, churned } from "./churn.ts";
import type { Fault, Kind } from "./fault.ts";
import { HealthWatch } from "./health-watch.ts";
import { kinds } from "./kinds.ts";
import type { ChaosOptions } from "./options.ts";
import type { Place } from "./place.ts";
import { FaultTable } from "./table.ts";
import { unwell, untrue } from "./wholeness.ts";
import { startWorld, type World } from "./world.ts";
import { Writers } from "./writers.ts";

/** Limit from healing a fault until the cluster is whole. Generous: the machine may be busy. */
const wholeMsMax = 300_000;
/** Limit from the end of writes until all managers agree and list every acknowledged write. */
const settledMsMax = 120_000;
/** Pause between faults: effects of the last one must not be attributed to the next. */
const restMs = 500;

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** True if every check held after each fault. */
export async function run(options: ChaosOptions, folder: string, ending: AbortSignal): Promise<boolean> {
  const { faults, seed } = options;
  say(`chaos: ${faults} faults, seed ${seed}`);
  const startedAt = performance.now();
  const world = await startWorld(folder, say);
  say(`started in ${seconds(performance.now() - startedAt)}`);
  const random = new SimRandom(`${seed}/chaos`);
  const writers = new Writers(world.managers, random.fork("writers"));
  const health = new HealthWatch(world.managers, world.healthUrl, writers);
  const table = new FaultTable();
  const possible = possibleKinds(options, world);
  let deck: Kind[] = [];
  const touched = new Map<Place, number>();
  let problem: string | null = null;
  for (let n = 1; n <= faults && problem === null && !ending.aborted; n += 1) {
    if (deck.length === 0) deck = shuffled(possible, random);
    const kind = deck.pop() as Kind;
    const fault = kind.draw(world, random.fork(`fault ${n}`));
    const parts = { world, writers, health, table, ending, random: random.fork(`churn ${n}`), touched };
    problem = await oneFault(n, kind, fault, parts).catch(
      (error: unknown) => `the fault could not be injected or healed: ${String(error)}`,
    );
    if (problem !== null) say(`FAILED: seed ${seed}, fault ${n} (${kind.name} ${fault.where}): ${problem}`);
  }
  await Promise.all([writers.stop(), health.stop()]);
  const { acknowledged, refused, unknown } = writers.record.counts;
  say(`\n${table.text()}\n`);
  say(`writes: ${acknowledged} acknowledged, ${refused} refused, ${unknown} with an unknown outcome`);
  for (const { process: each } of world.all) for (const end of each.ends) say(end);
  if (problem === null) say(`${table.count} faults, all checks held (${seconds(performance.now() - startedAt)})`);
  return problem === null;
}

function possibleKinds({ only }: ChaosOptions, world: World): readonly Kind[] {
  return kinds.filter((kind) => {
    if (only.length > 0 && !only.includes(kind.name)) return false;
    const missing = kind.missing?.(world) ?? null;
    if (missing !== null) say(`not drawn: ${kind.name} (${missing})`);
    return missing === null;
  });
}

function shuffled<Item>(items: readonly Item[], random: SimRandom): Item[] {
  const left = [...items];
  return items.map(() => left.splice(random.below(left.length), 1)[0] as Item);
}

interface Run {
  readonly world: World;
  readonly writers: Writers;
  readonly health: HealthWatch;
  readonly table: FaultTable;
  readonly ending: AbortSignal;
  readonly random: SimRandom;
  /** When a fault of each agent was last healed (ms of `performance.now()`). */
  readonly touched: Map<Place, number>;
}

/**
 * After a long cut, a link stays dead for as long again, because TCP retries ever less often. Its node may be declared DOWN
 * after the fault is healed and all looks well.
 */
const aftermathMs = 60_000;

function isFresh(agent: Place, touched: ReadonlyMap<Place, number>): boolean {
  return performance.now() - (touched.get(agent) ?? -aftermathMs) < aftermathMs;
}

/** The first check that failed; null if all held. */
async function oneFault(n: number, kind: Kind, fault: Fault, run: Run): Promise<string | null> {
  const { world, writers, health, table, ending, random, touched } = run;
  writers.measure();
  const before = processesOn(world.agents.filter((agent) => !fault.agents.includes(agent) && !isFresh(agent, touched)));
  const injectedAt = performance.now();
  await fault.inject();
  const churning = churn(random.pick(world.managers));
  await sleep(fault.holdMs);
  await fault.heal();
  const healedAt = performance.now();
  for (const agent of fault.agents) touched.set(agent, healedAt);
  await churning;
  let problems = await settle(wholeMsMax, ending, () => unwell(world, writers, health, healedAt));
  if (ending.aborted) return null;
  const gaps = writers.gaps();
  const wholeMs = performance.now() - healedAt;
  if (problems.length > 0) return `not whole ${seconds(wholeMsMax)} after healing: ${problems.join("; ")}`;
  await writers.pause();
  problems = await settle(settledMsMax, ending, () => untrue(world, writers));
  if (ending.aborted) return null;
  problems.push(...replaced(before));
  if (problems.length > 0) return problems.join("; ");
  const lies = health.lies();
  if (lies.length > 0) return lies.join("; ");
  table.add(kind.name, { ...gaps, wholeMs });
  say(
    `${n} ${kind.name} ${fault.where} for ${seconds(healedAt - injectedAt)}: no write for ${seconds(gaps.anywhereMs)}, ` +
      `at ${gaps.worst} for ${seconds(gaps.worstMs)}; whole after ${seconds(wholeMs)}`,
  );
  writers.resume();
  await sleep(restMs);
  return null;
}

/** Tasks on these machines that must keep running. */
function processesOn(agents: readonly Place[]): readonly TaskProcess[] {
  const all = taskProcesses(...agents.map(({ dataDir }) => dataDir));
  return all.filter(({ slot }) => !slot.startsWith(`${churned}.`));
}

/** The subset of them that was replaced although nothing happened to their machines. */
function replaced(before: readonly TaskProcess[]): readonly string[] {
  return before
    .filter(({ pid }) => !isAlive(pid))
    .map(({ pid, taskId, slot }) => `${slot} (${taskId}, ${pid}) ended, although no fault touched its machine`);
}

/** Polls for problems until there are none or the time is over; returns the remaining ones. */
async function settle(msMax: number, ending: AbortSignal, look: () => Promise<string[]>): Promise<string[]> {
  const deadline = performance.now() + msMax;
  for (;;) {
    const lookedAt = performance.now();
    const problems = await look().catch((error: unknown) => [`cannot read the cluster's state: ${String(error)}`]);
    if (problems.length === 0 || performance.now() > deadline || ending.aborted) return problems;
    // Waiting leaves the processor to the cluster.
    await sleep(Math.max(200, 2 * (performance.now() - lookedAt)));
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}
