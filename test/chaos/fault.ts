/** What a fault is to the run. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { Place } from "./place.ts";
import type { World } from "./world.ts";

export interface Fault {
  /** What is done to whom, such as `m2` or `n1 | n2, n3`. */
  readonly where: string;
  /** How long it lasts, in milliseconds. */
  readonly holdMs: number;
  /** Agents that it touches: the tasks of all others must go on in the processes in which they run. */
  readonly agents: readonly Place[];
  inject(): Promise<void> | void;
  /** What an operator, or the world, would do about it. */
  heal(): Promise<void> | void;
}

export interface Kind {
  readonly name: string;
  /** Why this machine cannot have it; null when it can. */
  missing?(world: World): string | null;
  draw(world: World, random: SimRandom): Fault;
}

/** Machines of one role, by the role's name as kinds have it. */
export const roles: readonly (readonly [string, (world: World) => readonly Place[]])[] = [
  ["nats", (world) => world.nats],
  ["manager", (world) => world.managers],
  ["agent", (world) => world.agents],
];

export function agentsAmong(...places: readonly Place[]): readonly Place[] {
  return places.filter(({ role }) => role === "agent");
}

/** A few of them, at least one, in their order. */
export function some<Item>(items: readonly Item[], random: SimRandom): readonly Item[] {
  const count = 1 + random.below(items.length);
  const left = [...items];
  while (left.length > count) left.splice(random.below(left.length), 1);
  return left;
}

export function namesOf(places: readonly Place[]): string {
  return places.map(({ name }) => name).join(", ");
}
