/** Examples of each command, by its name: what the help shows and the reference page. A test reads every line of them. */
import type { Example } from "../command.ts";

const examples: Readonly<Record<string, readonly Example[]>> = {};

/** None for a command that has none here. */
export function examplesOf(name: string): readonly Example[] {
  return Object.hasOwn(examples, name) ? (examples[name] ?? []) : [];
}
