/** The error of a process's own clock, drawn from the seed and the process's name. */
import type { SimProcessOptions } from "../runtime/sim/simulation.ts";
import type { Scene } from "./scene.ts";

export function drawClock(
  { options, simulation }: Scene,
  name: string,
): Required<Pick<SimProcessOptions, "skewMs" | "driftPpm">> {
  const random = simulation.random.fork(`clock.${name}`);
  const { driftPpmMax, skewMsMax } = options;
  return {
    skewMs: Math.round(random.between(-skewMsMax, skewMsMax)),
    driftPpm: random.between(-driftPpmMax, driftPpmMax),
  };
}

/** Whether every clock of the world shows true time. */
export function areExact({ options: { driftPpmMax, rates, skewMsMax } }: Scene): boolean {
  return skewMsMax === 0 && driftPpmMax === 0 && rates["clock.jump"] === 0;
}
