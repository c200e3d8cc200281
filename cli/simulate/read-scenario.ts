/**
 * Reads a scenario: `name`, `description`, `duration`, and `steps`, each with a time (`at`) and one action (docs/simulate.md).
 * Nothing in it depends on the seed.
 */
import type { ClusterPlan, ScenarioPlan, StepPlan } from "../../simulation/rehearsal/plan.ts";
import { basename } from "node:path";
import type { Variables } from "../stack/interpolate.ts";
import { Fields } from "./fields.ts";
import { Mistakes } from "./mistakes.ts";
import { actionKinds, readAction } from "./read-action.ts";
import { unplaceable } from "./placeable.ts";
import { readTree } from "./read-cluster.ts";
import { definitionOf, keyOf } from "./read-service.ts";
import { Timeline } from "./timeline.ts";

const scenarioKeys = ["name", "description", "duration", "steps", "networks"] as const;

/** Default, shortest and longest length. A year takes hours of computation even for a small cluster. */
const durationMsDefault = 3_600_000;
const durationMsMin = 1_000;
const durationMsMax = 366 * 86_400_000;

/** `file`: its name in errors; `cluster`: the plan that steps apply to. Throws UserError with all mistakes. */
export function readScenario(text: string, file: string, cluster: ClusterPlan, variables: Variables): ScenarioPlan {
  const mistakes = new Mistakes();
  const root = readTree(text, file, variables, mistakes, "a scenario must be a mapping with 'steps'");
  const fields = new Fields(root, "", scenarioKeys, mistakes);
  fields.require("steps");
  const durationMs = fields.ms("duration", durationMsDefault, durationMsMin);
  if (durationMs > durationMsMax) fields.add("duration", "must be at most 366d");
  const timeline = new Timeline(cluster);
  const networks = cluster.networks.map(({ annotations }) => annotations?.name ?? "");
  const steps: StepPlan[] = [];
  for (const { fields: step, atMs } of inOrder(fields, durationMs)) {
    const leftMs = Math.max(0, durationMs - atMs);
    const action = readAction(step, { timeline, networks, managers: cluster.managers, leftMs });
    if (action !== null) steps.push({ atMs, action });
  }
  checkPlaces(timeline, mistakes);
  const name = fields.text("name", basename(file).replace(/\.ya?ml$/, ""));
  const description = fields.text("description").trim();
  mistakes.report();
  return { name, description, durationMs, steps };
}

/** A service that a file defines must have a node on which it could run. */
function checkPlaces({ allNodes, allServices }: Timeline, mistakes: Mistakes): void {
  const reported = new Set<string>();
  for (const plan of allServices) {
    const definition = definitionOf(plan);
    const found = definition === undefined ? null : unplaceable(plan.spec, allNodes);
    if (definition === undefined || found === null) continue;
    const { at, path } = keyOf(definition, found.keys);
    // A later version may have it from an earlier one.
    const place = JSON.stringify(at);
    if (!reported.has(place)) mistakes.add(at, path, found.problem);
    reported.add(place);
  }
}

/** Steps by time; those of one time stay in the order of the file. */
function inOrder(fields: Fields, durationMs: number): readonly { readonly fields: Fields; readonly atMs: number }[] {
  const steps = fields.items("steps").map(({ node, path }) => {
    const step = new Fields(node, path, ["at", ...actionKinds], fields.mistakes);
    step.require("at");
    const atMs = step.ms("at", 0);
    if (atMs > durationMs) step.add("at", "is after the end of the scenario; set a longer 'duration'");
    return { fields: step, atMs };
  });
  return steps.toSorted((a, b) => a.atMs - b.atMs);
}
