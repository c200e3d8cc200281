/** Cuts links between machines in both directions or one, drops some of their packets, or delays all of them. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import { agentsAmong, type Fault, type Kind, namesOf, roles, some } from "./fault.ts";
import { cut, delay, delayMissing, type Direction, lose, heal } from "./network.ts";
import type { Place } from "./place.ts";
import type { World } from "./world.ts";

/** Both within a node's grace period (three heartbeats of 5 s) and beyond it. */
const holdMsMin = 2_000;
const holdMsMax = 10_000;
const longMsMax = 25_000;

type Ends = (world: World, random: SimRandom) => { readonly place: Place; readonly others: readonly Place[] };

/** Which machines may be cut from which. */
const links: readonly (readonly [string, Ends, number])[] = [
  [
    "manager-nats",
    (world, random) => ({ place: random.pick(world.managers), others: some(world.nats, random) }),
    holdMsMax,
  ],
  [
    "nats-nats",
    (world, random) => {
      const place = random.pick(world.nats);
      return {
        place,
        others: some(
          world.nats.filter((each) => each !== place),
          random,
        ),
      };
    },
    holdMsMax,
  ],
  [
    "agent-manager",
    (world, random) => ({ place: random.pick(world.agents), others: some(world.managers, random) }),
    longMsMax,
  ],
];

const between = ([name, ends, msMax]: (typeof links)[number], oneWay: boolean): Kind => ({
  name: `${oneWay ? "cut one way" : "cut"} ${name}`,
  draw: (world, random) => {
    const { place, others } = ends(world, random);
    const direction: Direction = oneWay ? random.pick(["in", "out"]) : "both";
    const sign = { both: "|", in: "<-|", out: "->|" }[direction];
    return onPlace(place, `${place.name} ${sign} ${namesOf(others)}`, random.between(holdMsMin, msMax), () =>
      cut(place, others, direction),
    );
  },
});

const loss: Kind = {
  name: "loss",
  draw: (world, random) => {
    const place = anyPlace(world, random);
    const share = random.between(0.05, 0.3);
    return onPlace(place, `${place.name} ${Math.round(share * 100)} %`, random.between(holdMsMin, holdMsMax), () =>
      lose(place, share),
    );
  },
};

const late: Kind = {
  name: "delay",
  missing: delayMissing,
  draw: (world, random) => {
    const place = anyPlace(world, random);
    const ms = Math.round(random.between(20, 200));
    let end = (): Promise<void> => Promise.resolve();
    return {
      where: `${place.name} ${ms} ms`,
      agents: agentsAmong(place),
      holdMs: random.between(holdMsMin, holdMsMax),
      inject: async () => void (end = await delay(place, ms, ms / 4)),
      heal: () => end(),
    };
  },
};

/** Each role with the same chance. */
function anyPlace(world: World, random: SimRandom): Place {
  const [, places] = random.pick(roles);
  return random.pick(places(world));
}

function onPlace(place: Place, where: string, holdMs: number, inject: () => void): Fault {
  return { where, agents: agentsAmong(place), holdMs, inject, heal: () => heal(place) };
}

export const networkKinds: readonly Kind[] = [
  ...links.map((link) => between(link, false)),
  ...links.map((link) => between(link, true)),
  loss,
  late,
];
