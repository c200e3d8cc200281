/** `x-behaviour` of a service: how long its tasks take to pull, start and stop, and how often they fail. */
import type { BehaviourPlan, DurationPlan } from "../../simulation/rehearsal/plan.ts";
import type { MappingNode, Node } from "../stack/located.ts";
import { child, under } from "../stack/located.ts";
import { similarTo } from "../help/suggestion.ts";
import { Fields } from "./fields.ts";
import type { Mistakes } from "./mistakes.ts";

export const behaviourKey = "x-behaviour";
export const behaviourKeys = ["pull", "start", "stop", "start-failure", "life"] as const;

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
};

/** Shortest mean life; a shorter one is a start that fails. */
const lifeMsMin = 1_000;

/** `path`: that of the service. */
export function readBehaviour(service: MappingNode, path: string, mistakes: Mistakes): BehaviourPlan {
  checkSpelling(service, path, mistakes);
  const node = child(service, behaviourKey);
  if (node === undefined) return behaviourDefaults;
  const fields = new Fields(node, under(path, behaviourKey), behaviourKeys, mistakes);
  return {
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
function durationOf(fields: Fields, key: "pull" | "start" | "stop", otherwise: DurationPlan): DurationPlan {
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
