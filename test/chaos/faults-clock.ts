/** Steps wall clocks forward or back, and later steps them back to the true time. */
import { clockMissing, setClock } from "./clock.ts";
import { agentsAmong, type Kind, roles } from "./fault.ts";

/** Seconds: more than any lease or grace period, less than what invalidates a new node's certificate (an hour). */
const stepMin = 10;
const stepMax = 3_000;
const holdMsMin = 2_000;
const holdMsMax = 8_000;

export const clockKinds: readonly Kind[] = roles.map(([role, places]) => ({
  name: `clock of ${role}`,
  missing: clockMissing,
  draw: (world, random) => {
    const place = random.pick(places(world));
    const seconds = Math.round(random.between(stepMin, stepMax)) * random.pick([1, -1]);
    const { process } = place;
    return {
      where: `${place.name} ${seconds > 0 ? "+" : ""}${seconds} s`,
      agents: agentsAmong(place),
      holdMs: random.between(holdMsMin, holdMsMax),
      inject: () => setClock(process.pid, seconds),
      heal: () => setClock(process.pid, 0),
    };
  },
}));
