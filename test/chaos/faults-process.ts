/** Processes that are killed, or stand still for a while. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import { kill } from "../fixtures/processes.ts";
import type { Fault, Kind } from "./fault.ts";
import { type Place, wordsOf } from "./place.ts";
import type { World } from "./world.ts";

const killedMsMax = 6_000;
const stoppedMsMax = 8_000;

type Choose = (world: World) => readonly Place[];
const roles: readonly (readonly [string, Choose])[] = [
  ["nats", (world) => world.nats],
  ["manager", (world) => world.managers],
  ["agent", (world) => world.agents],
];

const killed = ([role, places]: (typeof roles)[number]): Kind => ({
  name: `kill ${role}`,
  draw: (world, random) => {
    const place = random.pick(places(world));
    return {
      where: place.name,
      holdMs: random.between(0, killedMsMax),
      inject: () => place.process.end(),
      heal: () => place.process.start(),
    };
  },
});

const stopped = ([role, places]: (typeof roles)[number]): Kind => ({
  name: `stop ${role}`,
  draw: (world, random) => {
    const place = random.pick(places(world));
    return {
      where: place.name,
      holdMs: random.between(1_000, stoppedMsMax),
      inject: () => place.process.signal("SIGSTOP"),
      heal: () => place.process.signal("SIGCONT"),
    };
  },
});

/** What the agent itself brings back. */
export function driversOf(agent: Place): readonly number[] {
  return agent.pids().filter((pid) => wordsOf(pid).some((word) => word.includes("drivers/exec")));
}

const killedDriver: Kind = {
  name: "kill driver",
  draw: (world, random) =>
    onDriver(
      world,
      random,
      0,
      (pids) => pids.forEach((pid) => kill(pid)),
      () => {},
    ),
};

const stoppedDriver: Kind = {
  name: "stop driver",
  draw: (world, random) =>
    onDriver(
      world,
      random,
      random.between(1_000, stoppedMsMax),
      (pids) => pids.forEach((pid) => kill(pid, "SIGSTOP")),
      (pids) => pids.forEach((pid) => kill(pid, "SIGCONT")),
    ),
};

function onDriver(
  world: World,
  random: SimRandom,
  holdMs: number,
  inject: (pids: readonly number[]) => void,
  heal: (pids: readonly number[]) => void,
): Fault {
  const place = random.pick(world.agents);
  let pids: readonly number[] = [];
  return {
    where: place.name,
    holdMs,
    inject: () => inject((pids = driversOf(place))),
    heal: () => heal(pids),
  };
}

export const processKinds: readonly Kind[] = [...roles.map(killed), killedDriver, ...roles.map(stopped), stoppedDriver];
