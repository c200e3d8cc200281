/** The faults of a simulation: those kinds that are on, at random times, until `heal`. */
import { noFaults } from "../../runtime/sim/network.ts";
import type { Simulation } from "../../runtime/sim/simulation.ts";
import type { SimOptions } from "../options.ts";
import type { FaultTargets, FaultWorld, Strike, Strikes } from "./fault.ts";
import { faults } from "./kinds.ts";

export interface Faults {
  /** All strikes so far, in the order of time. */
  readonly struck: readonly Strike[];
  /** Ends all faults and their effects. */
  heal(): void;
}

export function startFaults(simulation: Simulation, options: SimOptions, targets: FaultTargets): Faults {
  const { clock, nats, network, random: source, trace } = simulation;
  const processes = [...targets.managers, ...targets.agents];
  let isHealed = false;
  network.faults = { ...options.network };

  function later(ms: number, work: () => void): void {
    clock.schedule(
      () => {
        if (!isHealed) work();
      },
      ms,
      null,
    );
  }

  function repeat(ms: number, work: () => void): void {
    later(ms, () => {
      work();
      repeat(ms, work);
    });
  }

  const world: FaultWorld = { ...targets, simulation, processes, later, repeat };
  const begun: Strikes[] = [];
  const struck: Strike[] = [];
  const startedAt = clock.elapsed;
  for (const { begin, kind } of faults) {
    const meanMs = options.rates[kind];
    if (meanMs === 0) continue;
    const random = source.fork(`faults.${kind}`);
    const strikes: Strikes = begin(world);
    begun.push(strikes);
    const strike = (draw: number): void => {
      trace.mark(`fault.${kind}`);
      trace.write("world", `fault ${kind}`);
      struck.push({ kind, atMs: Math.round(clock.elapsed - startedAt), draw });
      // A stream for each strike, because how much a strike draws depends on the state of the world.
      strikes.strike(random.fork(draw === 0 ? "strike" : `strike#${draw}`));
    };
    const next = (draw: number): void =>
      later(-meanMs * Math.log(1 - random.next()), () => {
        strike(draw);
        next(draw + 1);
      });
    if (options.strikes === null) next(0);
    else for (const { atMs, draw, kind: its } of options.strikes) if (its === kind) later(atMs, () => strike(draw));
  }

  return {
    struck,
    heal() {
      isHealed = true;
      trace.write("world", "heal");
      for (const strikes of begun) strikes.heal?.();
      network.faults = noFaults();
      network.healAll();
      nats.start();
      for (const process of processes) process.start();
    },
  };
}
