/** Kills processes, or stops them for a while. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import { kill } from "../fixtures/processes.ts";
import { agentsAmong, type Fault, type Kind, namesOf, roles } from "./fault.ts";
import { type Place, wordsOf } from "./place.ts";
import type { World } from "./world.ts";

const killedMsMax = 6_000;
const stoppedMsMax = 8_000;

const killed = ([role, places]: (typeof roles)[number]): Kind => ({
  name: `kill ${role}`,
  draw: (world, random) => {
    const place = random.pick(places(world));
    return {
      where: place.name,
      agents: agentsAmong(place),
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
      agents: agentsAmong(place),
      holdMs: random.between(1_000, stoppedMsMax),
      inject: () => place.process.signal("SIGSTOP"),
      heal: () => place.process.signal("SIGCONT"),
    };
  },
});

/** Processes that the agent itself restarts. */
function driversOf(agent: Place): readonly number[] {
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
    agents: [place],
    holdMs,
    inject: () => inject((pids = driversOf(place))),
    heal: () => heal(pids),
  };
}

/** Nobody can write meanwhile, for long enough that every manager must report it. */
const lostMajority: Kind = {
  name: "kill two nats",
  draw: (world, random) => killedTogether(without(world.nats, random), random.between(35_000, 40_000)),
};

/** A fault in two places at once, neither of which runs a node. */
const lostHalf: Kind = {
  name: "kill two managers and a nats",
  draw: (world, random) => {
    const places = [...without(world.managers, random), random.pick(world.nats)];
    return killedTogether(places, random.between(0, killedMsMax));
  },
};

const lostManagers: Kind = {
  name: "kill all managers",
  draw: (world, random) => killedTogether(world.managers, random.between(0, killedMsMax)),
};

/** All but one. */
function without(places: readonly Place[], random: SimRandom): readonly Place[] {
  const left = random.pick(places);
  return places.filter((place) => place !== left);
}

function killedTogether(places: readonly Place[], holdMs: number): Fault {
  return {
    where: namesOf(places),
    agents: agentsAmong(...places),
    holdMs,
    inject: async () => void (await Promise.all(places.map(({ process }) => process.end()))),
    heal: () => places.forEach(({ process }) => process.start()),
  };
}

export const processKinds: readonly Kind[] = [
  ...roles.map(killed),
  killedDriver,
  ...roles.map(stopped),
  stoppedDriver,
  lostMajority,
  lostHalf,
  lostManagers,
];
