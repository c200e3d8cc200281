// Each edge of the rollout's chart is taken by some scenario of a whole orchestration: an edge that no scenario takes is either
// untested, or drawn although it can never be taken.
import { readdirSync, readFileSync } from "node:fs";
import test from "ava";
import type { InspectionEvent } from "xstate";
import { rolloutMachine } from "../../machines/orchestration/rollout.machine.ts";
import { rolloutScript } from "../support/transcript-rollout.ts";
import { replay } from "../support/transcript.ts";

const folder = new URL("../unit/transcripts/rollout/", import.meta.url);

interface Transition {
  readonly source: { readonly id: string };
  readonly eventType: string;
  readonly guard?: unknown;
  readonly target: readonly { readonly id: string }[] | undefined;
}

/** Such as `rollout.update.pausing phase.is [isPaused] -> rollout.update.paused`. */
function edgeName({ source, eventType, guard, target }: Transition): string {
  const condition =
    guard === undefined ? "" : ` [${typeof guard === "string" ? guard : (guard as { type: string }).type}]`;
  return `${source.id} ${eventType}${condition} -> ${target?.map(({ id }) => id).join() ?? ""}`;
}

function* edgesOf(node: typeof rolloutMachine.root): Iterable<Transition> {
  for (const transitions of node.transitions.values()) yield* transitions as unknown as readonly Transition[];
  for (const child of Object.values(node.states)) yield* edgesOf(child);
}

test("each edge of a rollout's chart is taken by some transcript", async (t) => {
  const taken = new Set<string>();
  const see = (event: InspectionEvent): void => {
    if (event.type !== "@xstate.microstep") return;
    for (const each of event._transitions) taken.add(edgeName(each as unknown as Transition));
  };
  for (const file of readdirSync(folder)) await replay(readFileSync(new URL(file, folder), "utf8"), rolloutScript(see));
  // Events that are ignored on purpose, or reported as unexpected, lead nowhere.
  const edges = [...edgesOf(rolloutMachine.root)].filter(({ target }) => target !== undefined);
  t.deepEqual(
    edges.map(edgeName).filter((name) => !taken.has(name)),
    [],
  );
});
