/** Whether constraints and preferences can be understood at all; whether a node meets them is the scheduler's business. */
import type { Placement } from "../proto/gen/messages.ts";
import { invalid, type Refusal } from "./refusal.ts";

const keyPattern = /^[a-z_][a-z0-9._-]+$/i;
const valuePattern = /^[a-z0-9:_\s.*()?+[\]\\^$|/-]+$/i;

export function checkConstraint(text: string): Refusal | null {
  // `==` is looked for first, wherever a `!=` may stand.
  const operator = text.includes("==") ? "==" : text.includes("!=") ? "!=" : null;
  if (operator === null) return invalid("constraint expected one operator from ==, !=");
  const at = text.indexOf(operator);
  const key = text.slice(0, at).trim();
  const value = text.slice(at + operator.length).trim();
  if (!keyPattern.test(key)) return invalid(`key '${key}' is invalid`);
  if (!valuePattern.test(value)) return invalid(`value '${value}' is invalid`);
  return null;
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
      return invalid(`placement preference 'spread=${over}' is invalid: expected node.labels.<name> or engine.labels.<name>`);
    }
  }
  return null;
}
