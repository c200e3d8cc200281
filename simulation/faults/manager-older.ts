/**
 * A manager is replaced by an older version, which lacks some services to agents, and is upgraded after a while: agents meet
 * managers of both versions. In a world whose managers all begin as an older version, which knows a lower level of the log's format,
 * they are upgraded one by one first. A manager that goes back to it after the level was raised does not start until it is
 * upgraded.
 */
import { knownLevel } from "../../proto/format-level.ts";
import type { SimProcess } from "../../runtime/sim/simulation.ts";
import type { Fault } from "./fault.ts";

/** Longer than an agent takes to move between managers. */
const olderMsMax = 15_000;

export const managerOlder = {
  kind: "manager.older",
  share: 0.25,
  meanMs: [5_000, 20_000],
  begin({ later, managers, older, setVersion }) {
    const level = older().length > 0 ? knownLevel - 1 : knownLevel;
    const upgrade = (manager: SimProcess): void => {
      if (!older().includes(manager)) return;
      setVersion(manager, { isOlder: false, level: knownLevel });
      if (manager.isRunning) manager.restart();
    };
    return {
      strike(random) {
        const manager = random.pick(managers);
        if (older().includes(manager)) {
          upgrade(manager);
          for (const next of older()) later(random.between(1_000, olderMsMax), () => upgrade(next));
          return;
        }
        if (!manager.isRunning) return;
        setVersion(manager, { isOlder: true, level });
        manager.restart();
        later(random.between(2_000, olderMsMax), () => upgrade(manager));
      },
      heal() {
        for (const manager of older()) upgrade(manager);
      },
    };
  },
} as const satisfies Fault;
