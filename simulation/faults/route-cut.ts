/**
 * Messages on the bus from one manager to another are lost, in one direction or both, while both reach the log: as when a route
 * between two nats-servers is cut.
 */
import type { Fault } from "./fault.ts";

/** Longer than the managers wait until they declare a silent one dead. */
const cutMsMax = 15_000;

export const routeCut = {
  kind: "route.cut",
  share: 0.3,
  meanMs: [3_000, 15_000],
  begin({ later, managers, simulation: { nats } }) {
    const healers = new Set<() => void>();
    return {
      strike(random) {
        if (managers.length < 2) return;
        const { name: from } = random.pick(managers);
        const { name: to } = random.pick(managers.filter(({ name }) => name !== from));
        const directions = random.chance(0.7) ? [[from, to] as const] : [[from, to] as const, [to, from] as const];
        for (const [one, other] of directions) nats.cutRoute(one, other);
        const heal = (): void => {
          for (const [one, other] of directions) nats.healRoute(one, other);
        };
        healers.add(heal);
        later(random.between(500, cutMsMax), heal);
      },
      heal() {
        for (const heal of healers) heal();
      },
    };
  },
} as const satisfies Fault;
