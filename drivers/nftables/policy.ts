/**
 * Renders a policy or profile as two chains, one per direction. A packet leaves such a chain accepted (the accept bit of its
 * mark is set), passed on (the pass bit), undecided, or not at all.
 *
 * Y1: references to policies and profiles that main has not described drop every packet.
 */
import type { Policy, Profile, Rule } from "../../proto/gen/felix.ts";
import type { Settings } from "./config.ts";
import type { IpSetType } from "./ip-set.ts";
import { nameOf } from "./names.ts";
import { OutputBuilder, type Direction, type Output } from "./output.ts";
import { unreadablePolicy } from "./policy-key.ts";
import { dropOf, renderRule, type RuleSurroundings } from "./rule.ts";

export function policyChain(direction: Direction, key: string): string {
  return nameOf(direction === "in" ? "pi" : "po", key);
}

export function profileChain(direction: Direction, name: string): string {
  return nameOf(direction === "in" ? "fi" : "fo", name);
}

interface RuleContext {
  readonly settings: Settings;
  typeOf(setId: string): IpSetType | null;
}

export function renderPolicy(key: string, policy: Policy | null, context: RuleContext): Output {
  const chains = { in: policyChain("in", key), out: policyChain("out", key) };
  const missing =
    key === unreadablePolicy ? "cannot read the name of a policy" : `main has not described policy ${key}`;
  return render(chains, policy, { isUntracked: policy?.untracked ?? false, missing }, context);
}

export function renderProfile(name: string, profile: Profile | null, context: RuleContext): Output {
  // Felix 2.0 does not report a missing profile: it closes, which is not an error of the driver.
  const chains = { in: profileChain("in", name), out: profileChain("out", name) };
  return render(chains, profile, { isUntracked: false, missing: null }, context);
}

function render(
  chains: Readonly<Record<Direction, string>>,
  rules: { readonly inboundRules: readonly Rule[]; readonly outboundRules: readonly Rule[] } | null,
  { isUntracked, missing }: { readonly isUntracked: boolean; readonly missing: string | null },
  context: RuleContext,
): Output {
  const output = new OutputBuilder();
  if (rules === null) {
    // Y1
    for (const name of [chains.in, chains.out]) output.chain(name, [dropOf(context.settings)]);
    output.problem(missing);
    return output.build();
  }
  const around: RuleSurroundings = {
    settings: context.settings,
    isUntracked,
    typeOf: (id) => {
      output.usesSet(id);
      return context.typeOf(id);
    },
  };
  for (const [name, list] of [
    [chains.in, rules.inboundRules],
    [chains.out, rules.outboundRules],
  ] as const) {
    const lines: string[] = [];
    for (const rule of list) {
      const rendered = renderRule(rule, around);
      lines.push(...rendered.lines);
      output.problem(rendered.problem);
    }
    output.chain(name, lines);
  }
  return output.build();
}
