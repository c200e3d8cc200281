/** Checks the syntax of constraints and preferences; the scheduler decides which nodes meet them. */
import type { Placement } from "../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../refusal.ts";
import { parseConstraint } from "../scheduling/constraints.ts";

export function checkConstraint(text: string): Refusal | null {
  const outcome = parseConstraint(text);
  return outcome.kind === "invalid" ? invalid(outcome.message) : null;
}

/** Unlike SwarmKit, which ignores them, this refuses preferences that the scheduler does not understand. */
export function checkPlacement(placement: Placement | null): Refusal | null {
  for (const constraint of placement?.constraints ?? []) {
    const refusal = checkConstraint(constraint);
    if (refusal !== null) return refusal;
  }
  for (const preference of placement?.preferences ?? []) {
    const over = preference.spread?.spreadDescriptor ?? "";
    if (!/^(?:node\.site|(?:node|engine)\.labels\..+)$/i.test(over)) {
      return invalid(
        `placement preference 'spread=${over}' is invalid: expected node.labels.<name>, engine.labels.<name> or node.site`,
      );
    }
  }
  return null;
}
