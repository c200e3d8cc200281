import test from "ava";
import type { StateNode } from "xstate";
import { allCharts } from "../../cli/charts.ts";
import { waitOf, type WaitMeta } from "../../machines/wait-meta.ts";
import { reaperMachine } from "../../machines/orchestration/reaper.machine.ts";
import { taskMachine } from "../../machines/task.machine.ts";
import { volumeMachine } from "../../machines/volumes/volume.machine.ts";

type AnyStateNode = StateNode<never, never>;
interface Transition {
  readonly target: readonly unknown[] | undefined;
  readonly actions: readonly unknown[];
  readonly guard?: unknown;
}

function* statesOf(node: AnyStateNode): Iterable<AnyStateNode> {
  for (const child of Object.values(node.states) as AnyStateNode[]) {
    yield child;
    yield* statesOf(child);
  }
}

/** An actor rests here: a leaf that is neither final nor left at once. */
function isWaiting(node: AnyStateNode): boolean {
  const isTransient = (node.always ?? []).some(({ guard }) => guard === undefined);
  return node.type === "atomic" && !isTransient;
}

/** Transitions by event, of the state and those around it, up to the first without a guard. Leaves out ignored events. */
function eventsOf(state: AnyStateNode): ReadonlyMap<string, readonly Transition[]> {
  const events = new Map<string, Transition[]>();
  for (let node: AnyStateNode | undefined = state; node !== undefined; node = node.parent as AnyStateNode | undefined) {
    for (const [type, transitions] of node.transitions as unknown as ReadonlyMap<string, readonly Transition[]>) {
      const known = events.get(type) ?? [];
      if (type !== "*" && known.every(({ guard }) => guard !== undefined)) events.set(type, [...known, ...transitions]);
    }
  }
  for (const [type, transitions] of events) {
    const isIgnored = transitions.every(({ target, actions }) => target === undefined && actions.length === 0);
    if (isIgnored) events.delete(type);
  }
  return events;
}

/** The delays that end the state. */
function delaysOf({ after }: AnyStateNode): readonly string[] {
  return after.filter(({ target }) => target !== undefined).map(({ delay }) => String(delay));
}

function faultsOf(state: AnyStateNode): readonly string[] {
  const meta = state.meta as WaitMeta | undefined;
  if (!isWaiting(state)) return meta === undefined ? [] : ["does not wait, but has meta"];
  if (meta === undefined) return ["waits, and has no meta"];
  if (Object.keys(meta).join() !== "waitingFor,wokenBy" || meta.waitingFor === "") return ["is not a WaitMeta"];
  const events = eventsOf(state);
  const delays = delaysOf(state);
  const around: string[] = [];
  for (let node = state.parent; node !== undefined; node = node.parent) around.push(...delaysOf(node as AnyStateNode));
  const keys = Object.keys(meta.wokenBy);
  const isHandled = (key: string): boolean =>
    [...delays, ...around].includes(key) ||
    [...events.keys()].some((type) => type === key || (key.endsWith(".*") && type.startsWith(key.slice(0, -1))));
  const isLeft = [...events.values()].some((transitions) => transitions.some(({ target }) => target !== undefined));
  return [
    ...keys.filter((key) => !isHandled(key)).map((key) => `is woken by ${key}, which it does not handle`),
    ...keys.filter((key) => meta.wokenBy[key] === "").map((key) => `has no words for ${key}`),
    ...delays.filter((delay) => !keys.includes(delay)).map((delay) => `does not say that ${delay} ends the wait`),
    ...(keys.length === 0 && isLeft ? ["does not say what wakes it"] : []),
  ];
}

test("each state that waits says for what, and names an event or a deadline of the chart that wakes it", async (t) => {
  const faults: string[] = [];
  for (const { file, machine } of await allCharts()) {
    if (file.startsWith("orchestration/rollout")) continue;
    for (const state of statesOf(machine.root as unknown as AnyStateNode))
      for (const fault of faultsOf(state)) faults.push(`${file}: ${state.path.join(".")} ${fault}`);
  }
  t.deepEqual(faults, []);
});

test("a wait reads with the facts that are known", (t) => {
  t.deepEqual(waitOf(volumeMachine, "creating", { "the storage plugin": "storage plugin p" }), {
    waitingFor: "storage plugin p, to create it",
    wokenBy: "the plugin's answer",
  });
  t.is(waitOf(volumeMachine, "creating").waitingFor, "the storage plugin, to create it");
  t.is(
    waitOf(volumeMachine, "resting").wokenBy,
    "the end of the retry delay, a change of the volume, or the plugin's return",
  );
});

test("a state in which an actor does not rest has words too: it may be asked at any moment", (t) => {
  t.is(waitOf(taskMachine, "FAILED").waitingFor, "nothing: it has ended");
  t.is(waitOf(reaperMachine, "judged").waitingFor, "nothing: it is about to move on");
});
