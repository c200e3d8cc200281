/**
 * The decisions of tiers and profiles about a packet, as lines of a chain (docs/reference/felix-dataplane-protocol.md §11.2).
 * Workloads with the same tiers and profiles share one chain per direction.
 *
 * E1: a packet that nothing accepts is dropped; without tiers and profiles, every packet is.
 */
import type { TierInfo } from "../../proto/gen/felix.ts";
import type { Settings } from "./config.ts";
import { nameOf } from "./names.ts";
import { OutputBuilder, type Evaluation, type Output, type Tier, type Direction } from "./output.ts";
import { keyOfEntry } from "./policy-key.ts";
import { policyChain, profileChain } from "./policy.ts";
import { dropOf, hex } from "./rule.ts";

/** Matches on a packet's mark, and changes of it. */
export function marksOf({ marks }: Settings) {
  const both = marks.accept + marks.pass;
  return {
    clear: `meta mark set meta mark and ${hex(0xffffffff - both)}`,
    accept: `meta mark set meta mark or ${hex(marks.accept)}`,
    clearPass: `meta mark set meta mark and ${hex(0xffffffff - marks.pass)}`,
    isAccepted: `meta mark and ${hex(marks.accept)} == ${hex(marks.accept)}`,
    isNotPassed: `meta mark and ${hex(marks.pass)} == 0`,
  };
}

/** Skips tiers without policies for the direction. */
export function tiersOf(
  tiers: readonly TierInfo[],
  direction: Direction,
  settings: Settings,
  drops = true,
): readonly Tier[] {
  return tiers
    .map((tier): Tier => {
      const entries = direction === "in" || settings.hasOneTierList ? tier.ingressPolicies : tier.egressPolicies;
      return {
        policies: entries.map((entry) => keyOfEntry(tier.name, entry)).filter((key) => key !== null),
        drops: drops && tier.defaultAction.toLowerCase() !== "pass",
      };
    })
    .filter(({ policies }) => policies.length > 0);
}

export function evaluate(output: OutputBuilder, settings: Settings, evaluation: Evaluation): readonly string[] {
  const marks = marksOf(settings);
  const { direction, tiers, profiles, drops } = evaluation;
  const lines = [marks.clear];
  for (const [rank, tier] of tiers.entries()) {
    if (rank > 0) lines.push(marks.clearPass);
    for (const [index, key] of tier.policies.entries()) {
      output.usesPolicy(key);
      const jump = `jump ${policyChain(direction, key)}`;
      // Before the tier's first policy, no packet is marked as passed.
      lines.push(index === 0 ? jump : `${marks.isNotPassed} ${jump}`, `${marks.isAccepted} return`);
    }
    if (tier.drops) lines.push(`${marks.isNotPassed} ${dropOf(settings)}`);
  }
  for (const name of profiles) {
    output.usesProfile(name);
    lines.push(`jump ${profileChain(direction, name)}`, `${marks.isAccepted} return`);
  }
  if (drops) lines.push(dropOf(settings)); // E1
  return lines;
}

/** Equal for evaluations with equal decisions. */
export function evaluationKey(evaluation: Evaluation): string {
  return JSON.stringify(evaluation);
}

export function evaluationChain(key: string): string {
  return nameOf("w", key);
}

/** The chain that workloads share. */
export function renderEvaluation(key: string, evaluation: Evaluation, settings: Settings): Output {
  const output = new OutputBuilder();
  output.chain(evaluationChain(key), ["ct state vmap @tracked", ...evaluate(output, settings, evaluation)]);
  return output.build();
}
