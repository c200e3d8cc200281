/**
 * A statechart as the config that XState's `createMachine` takes and Stately's editor imports, in plain JSON: names of actions,
 * guards and delays instead of functions. Params that are computed from the event, and a context that depends on the
 * input, are absent.
 */
import type { AnyStateMachine } from "xstate";

/** Understood by Muster's host only. */
const ownKeys: readonly string[] = ["schemas", "output"];

/** Functions vanish; what `ignore` lists stays as transitions without targets or actions. */
export function xstateConfigOf(machine: AnyStateMachine, summary: string): Readonly<Record<string, unknown>> {
  const config = JSON.parse(JSON.stringify(machine.config)) as Record<string, unknown>;
  for (const key of ownKeys) delete config[key];
  const { id, description = summary, ...rest } = config;
  return { id, description, ...rest };
}
