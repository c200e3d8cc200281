/** `x-behaviour` of a service: how long its tasks take to pull, start and stop, how often they fail, and how long jobs run. */
import type { BehaviourPlan, DurationPlan, RunPlan } from "../../simulation/rehearsal/plan.ts";
import type { MappingNode, Node } from "../stack/located.ts";
import { child, textOf, under } from "../stack/located.ts";
import { similarTo } from "../help/suggestion.ts";
import { Fields } from "./fields.ts";
import type { Mistakes } from "./mistakes.ts";

export const behaviourKey = "x-behaviour";
const behaviourKeys = ["pull", "start", "stop", "start-failure", "life", "run", "run-failure"] as const;

/**
 * Assumptions for a service of a typical web application with an image of some 100 MB; not measured. `--from-cluster` takes
 * the cluster's own times.
 */
export const behaviourDefaults: BehaviourPlan = {
  pull: { medianMs: 4_000, p99Ms: 20_000 },
  start: { medianMs: 1_000, p99Ms: 5_000 },
  stop: { medianMs: 500, p99Ms: 5_000 },
  startFailure: 0,
  meanLifeMs: null,
  run: null,
};

/** An assumption about a batch job, not measured. */
export const runDefaults: RunPlan = { length: { medianMs: 60_000, p99Ms: 300_000 }, failure: 0 };

/** Shortest mean life; a shorter one is a start that fails. */
const lifeMsMin = 1_000;

/** `path`: that of the service. */
export function readBehaviour(service: MappingNode, path: string, mistakes: Mistakes): BehaviourPlan {
  checkSpelling(service, path, mistakes);
  const mode = child(child(service, "deploy"), "mode");
  const isJob = mode !== undefined && textOf(mode).endsWith("-job");
  const node = child(service, behaviourKey);
  if (node === undefined) return { ...behaviourDefaults, run: isJob ? runDefaults : null };
  const fields = new Fields(node, under(path, behaviourKey), behaviourKeys, mistakes);
  if (isJob && fields.has("life")) fields.add("life", "cannot be used with a job; use 'run' and 'run-failure'");
  for (const key of ["run", "run-failure"])
    if (!isJob && fields.has(key)) fields.add(key, "is only for jobs (deploy.mode replicated-job or global-job)");
  const run = {
    length: durationOf(fields, "run", runDefaults.length),
    failure: fields.probability("run-failure", runDefaults.failure),
  };
  return {
    run: isJob ? run : null,
    pull: durationOf(fields, "pull", behaviourDefaults.pull),
    start: durationOf(fields, "start", behaviourDefaults.start),
    stop: durationOf(fields, "stop", behaviourDefaults.stop),
    startFailure: fields.probability("start-failure", behaviourDefaults.startFailure),
    meanLifeMs: fields.text("life") === "never" ? null : fields.ms("life", behaviourDefaults.meanLifeMs, lifeMsMin),
  };
}

/** Compose ignores unknown keys that begin with `x-`, also `x-behavior`. */
function checkSpelling(service: MappingNode, path: string, mistakes: Mistakes): void {
  for (const [key, { at }] of service.entries) {
    const isSimilar = key !== behaviourKey && key.startsWith("x-") && similarTo(key, [behaviourKey]).length > 0;
    if (isSimilar) mistakes.addUnknown(at, under(path, key), key, [behaviourKey]);
  }
}

/** `4s` (always), or `{median: 4s, p99: 20s}`. */
function durationOf(fields: Fields, key: "pull" | "start" | "stop" | "run", otherwise: DurationPlan): DurationPlan {
  const node: Node | undefined = fields.node(key);
  if (node === undefined) return otherwise;
  if (node.kind === "scalar") {
    const ms = fields.ms(key, otherwise.medianMs);
    return { medianMs: ms, p99Ms: ms };
  }
  const both = new Fields(node, fields.pathOf(key), ["median", "p99"], fields.mistakes);
  if (node.kind === "mapping") both.require("median");
  const medianMs = both.ms("median", otherwise.medianMs);
  const p99Ms = both.ms("p99", medianMs);
  if (p99Ms >= medianMs) return { medianMs, p99Ms };
  both.add("p99", "must be at least the median");
  return { medianMs, p99Ms: medianMs };
}
