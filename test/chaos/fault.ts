/** A fault as the run sees it. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { Place } from "./place.ts";
import type { World } from "./world.ts";

export interface Fault {
  /** The action and its targets, such as `m2` or `n1 | n2, n3`. */
  readonly where: string;
  /** Duration in milliseconds. */
  readonly holdMs: number;
  /** Agents that it affects: tasks of all others must keep running in the same processes. */
  readonly agents: readonly Place[];
  inject(): Promise<void> | void;
  /** Repairs it as an operator, or the world, would. */
  heal(): Promise<void> | void;
}

export interface Kind {
  readonly name: string;
  /** Why this machine cannot inject it; null if it can. */
  missing?(world: World): string | null;
  draw(world: World, random: SimRandom): Fault;
}

/** Machines of one role, by its name in fault kinds. */
export const roles: readonly (readonly [string, (world: World) => readonly Place[]])[] = [
  ["nats", (world) => world.nats],
  ["manager", (world) => world.managers],
  ["agent", (world) => world.agents],
];

export function agentsAmong(...places: readonly Place[]): readonly Place[] {
  return places.filter(({ role }) => role === "agent");
}

/** Draws a few of them, at least one, in their order. */
export function some<Item>(items: readonly Item[], random: SimRandom): readonly Item[] {
  const count = 1 + random.below(items.length);
  const left = [...items];
  while (left.length > count) left.splice(random.below(left.length), 1);
  return left;
}

export function namesOf(places: readonly Place[]): string {
  return places.map(({ name }) => name).join(", ");
}
