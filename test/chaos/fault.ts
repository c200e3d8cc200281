/** What a fault is to the run. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { World } from "./world.ts";

export interface Fault {
  /** What is done to whom, such as `m2` or `n1 | n2, n3`. */
  readonly where: string;
  /** How long it lasts, in milliseconds. */
  readonly holdMs: number;
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
