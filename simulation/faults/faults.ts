/** The faults of a simulation: randomly chosen kinds at random times, until `heal`. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import { noFaults } from "../../runtime/sim/network.ts";
import { startDiskFaults, type FaultTargets } from "./disks.ts";
import type { SimProcess, Simulation } from "../../runtime/sim/simulation.ts";
import type { SimOptions } from "../options.ts";

export interface Faults {
  /** Ends all faults and their effects. */
  heal(): void;
}

const partitionMsMax = 15_000;
const downMsMax = 8_000;
const natsDownMsMax = 5_000;
const pauseMsMax = 12_000;
/** As with a missing clock battery, a wrong time zone or a laptop's sleep; less than the lifetime of a certificate. */
const clockJumpMsMax = 12 * 3_600_000;

export function startFaults(simulation: Simulation, options: SimOptions, targets: FaultTargets): Faults {
  const { clock, nats, network, trace } = simulation;
  const { rates } = options;
  const { managers, agents } = targets;
  const processes = [...managers, ...agents];
  let isHealed = false;
  network.faults = { ...options.network };

  /** Calls `strike` repeatedly, `meanMs` apart on average; never if that is 0. */
  function every(name: string, meanMs: number, strike: (random: SimRandom) => void): void {
    if (meanMs === 0) return;
    const random = simulation.random.fork(`faults.${name}`);
    const next = () => {
      clock.schedule(
        () => {
          if (isHealed) return;
          trace.mark(`fault.${name}`);
          strike(random);
          next();
        },
        -meanMs * Math.log(1 - random.next()),
        null,
      );
    };
    next();
  }

  function later(ms: number, work: () => void): void {
    clock.schedule(
      () => {
        if (!isHealed) work();
      },
      ms,
      null,
    );
  }

  every("partition", rates.partitionMs, (random) => {
    const one = random.pick(processes).name;
    const others = [nats.name, ...managers.map(({ name }) => name)].filter((name) => name !== one);
    const other = random.pick(others);
    const directions = random.pick([
      [[one, other]],
      [[other, one]],
      [
        [one, other],
        [other, one],
      ],
    ] as const);
    for (const [from, to] of directions) network.cut(from, to);
    later(random.between(100, partitionMsMax), () => {
      for (const [from, to] of directions) network.heal(from, to);
    });
  });

  function crash(process: SimProcess, random: SimRandom, losePower: boolean): void {
    if (!process.isRunning) return;
    process.crash({ losePower });
    if (losePower) targets.losePower(process);
    later(random.between(0, downMsMax), () => process.start());
  }

  every("manager.crash", rates.managerCrashMs, (random) => crash(random.pick(managers), random, false));
  every("agent.crash", rates.agentCrashMs, (random) => crash(random.pick(agents), random, false));
  every("power.failure", rates.powerFailureMs, (random) => crash(random.pick(processes), random, true));
  every("nats.crash", rates.natsCrashMs, (random) => {
    if (!nats.isUp) return;
    nats.crash({ loseTail: rates.lostTail && targets.mayLoseTail() });
    later(random.between(50, natsDownMsMax), () => nats.start());
  });
  every("nats.sync", rates.lostTail ? 2_000 : 0, () => nats.sync());
  every("pause", rates.pauseMs, (random) => {
    const ms = random.between(100, pauseMsMax);
    const target = random.below(processes.length + 1);
    const process = processes[target];
    if (process === undefined) nats.pause(ms);
    else process.pause(ms);
  });

  every("clock.jump", rates.clockJumpMs, (random) => {
    const ms = Math.round(random.between(1_000, clockJumpMsMax));
    random.pick(processes).jumpClock(random.chance(0.5) ? ms : -ms);
  });
  const disks = startDiskFaults(simulation, rates, { ...targets, every, later });

  return {
    heal() {
      isHealed = true;
      disks.heal();
      trace.write("world", "heal");
      network.faults = noFaults();
      network.healAll();
      nats.start();
      for (const process of processes) {
        process.setClockRight();
        process.start();
      }
    },
  };
}
