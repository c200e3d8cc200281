/** One process is cut off from a manager or from NATS, in one direction or both. */
import type { Fault } from "./fault.ts";

const cutMsMax = 15_000;

export const partition = {
  kind: "partition",
  share: 0.35,
  meanMs: [2_000, 15_000],
  begin: ({ later, managers, processes, simulation: { nats, network } }) => ({
    strike(random) {
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
      later(random.between(100, cutMsMax), () => {
        for (const [from, to] of directions) network.heal(from, to);
      });
    },
  }),
} as const satisfies Fault;
