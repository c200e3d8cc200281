/** Fills, loses or restores disks, or cuts the power of their machine. */
import { NodeStatus_State } from "../../proto/gen/messages.ts";
import { nodes } from "../fixtures/control-client.ts";
import { runMuster } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { agentsAmong, type Fault, type Kind, namesOf, roles } from "./fault.ts";
import type { Place } from "./place.ts";
import type { World } from "./world.ts";

const holdMsMin = 2_000;
const holdMsMax = 8_000;
/** Limit for a state that the operator waits for before the next step. */
const stepMsMax = 300_000;

type Role = (typeof roles)[number];

const full = ([role, places]: Role): Kind => ({
  name: `full disk of ${role}`,
  draw: (world, random) => {
    const place = random.pick(places(world));
    return {
      where: place.name,
      agents: agentsAmong(place),
      holdMs: random.between(holdMsMin, holdMsMax),
      inject: () => place.disk.fill(),
      heal: async () => {
        place.disk.free();
        // A nats-server that could not write has disabled JetStream until its next start (docs/managers.md).
        if (place.role !== "nats") return;
        await place.process.end();
        place.process.start();
      },
    };
  },
});

const wiped = ([role, places]: Role): Kind => ({
  name: `wiped ${role}`,
  draw: (world, random) => {
    const place = random.pick(places(world));
    let lost: readonly string[] = [];
    return {
      where: place.name,
      agents: agentsAmong(place),
      holdMs: 0,
      inject: async () => {
        lost = await nodesOf(world, place);
        await place.killAll();
        await place.disk.wipe();
      },
      heal: async () => {
        place.process.start();
        if (place.role !== "nats") await forget(world, place, lost);
      },
    };
  },
});

const older = ([role, places]: Role): Kind => ({
  name: `older ${role}`,
  draw: (world, random) => {
    const place = random.pick(places(world));
    return {
      where: place.name,
      agents: agentsAmong(place),
      holdMs: random.between(holdMsMin, holdMsMax),
      inject: async () => {
        await place.killAll();
        place.disk.keep();
        place.process.start();
      },
      heal: async () => {
        await place.killAll();
        await place.disk.putBack();
        place.process.start();
      },
    };
  },
});

const powerless = ([role, places]: Role): Kind => ({
  name: `power cut of ${role}`,
  draw: (world, random) => cutPower([random.pick(places(world))], random.between(0, holdMsMax)),
});

const powerlessNats: Kind = {
  name: "power cut of all nats",
  draw: (world, random) => cutPower(world.nats, random.between(0, holdMsMax)),
};

const powerlessAll: Kind = {
  name: "power cut of all",
  draw: (world, random) => cutPower(world.all, random.between(0, holdMsMax)),
};

/** At the same moment: no process lives to see another's exit, and data not on a disk by then is lost. */
function cutPower(places: readonly Place[], holdMs: number): Fault {
  return {
    where: namesOf(places),
    agents: agentsAmong(...places),
    holdMs,
    inject: async () => {
      await Promise.all(places.map((place) => place.killAll()));
      for (const { disk } of places) disk.cutPower();
    },
    heal: async () => {
      for (const { disk, process } of places) {
        await disk.powerOn();
        process.start();
      }
    },
  };
}

/** The machine's node ids in the cluster. */
async function nodesOf(world: World, place: Place): Promise<readonly string[]> {
  if (place.role === "nats") return [];
  const [other] = world.managers.filter((manager) => manager !== place) as [Place];
  return (await nodes(other))
    .filter(({ description, status, managerStatus }) =>
      place.role === "agent"
        ? description?.hostname === place.name
        : managerStatus?.addr.startsWith(`${place.machine.address}:`) || status?.addr === place.machine.address,
    )
    .map(({ id }) => id);
}

/** The machine has a new identity: the operator removes the old one, as docs/managers.md describes. */
async function forget(world: World, place: Place, lost: readonly string[]): Promise<void> {
  const [other] = world.managers.filter((manager) => manager !== place) as [Place];
  await until(
    `the new node of ${place.name}`,
    async () => (await nodesOf(world, place)).some((id) => !lost.includes(id)),
    stepMsMax,
  );
  const host = ["--host", `unix://${other.dataDir}/control.sock`];
  const steps = place.role === "manager" ? ["demote", "rm --force"] : ["rm --force"];
  for (const id of lost) {
    for (const step of steps) {
      await until(
        `node ${step} ${id}`,
        async () => {
          const { code, stderr } = await runMuster([...host, "node", ...step.split(" "), id]);
          if (code !== 0) throw new Error(stderr);
          return true;
        },
        stepMsMax,
      );
    }
  }
  await until(
    `a READY ${place.name}`,
    async () => (await nodes(other)).every(({ status }) => status?.state === NodeStatus_State.READY),
    stepMsMax,
  );
}

export const diskKinds: readonly Kind[] = [
  ...roles.map(full),
  ...roles.map(wiped),
  ...roles.map(older),
  ...roles.map(powerless),
  powerlessNats,
  powerlessAll,
];
