/** Whether constraints and preferences can be understood at all; whether a node meets them is the scheduler's business. */
import type { Placement } from "../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../refusal.ts";
import { parseConstraint } from "../scheduling/constraints.ts";

export function checkConstraint(text: string): Refusal | null {
  const outcome = parseConstraint(text);
  return outcome.kind === "invalid" ? invalid(outcome.message) : null;
}

/** Unlike SwarmKit, a preference that no scheduler would understand is refused rather than ignored. */
export function checkPlacement(placement: Placement | null): Refusal | null {
  for (const constraint of placement?.constraints ?? []) {
    const refusal = checkConstraint(constraint);
    if (refusal !== null) return refusal;
  }
  for (const preference of placement?.preferences ?? []) {
    const over = preference.spread?.spreadDescriptor ?? "";
    if (!/^(?:node|engine)\.labels\..+$/i.test(over)) {
      return invalid(
        `placement preference 'spread=${over}' is invalid: expected node.labels.<name> or engine.labels.<name>`,
      );
    }
  }
  return null;
}
