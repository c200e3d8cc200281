/**
 * A manager is replaced by an older version, which lacks some services to agents, and is upgraded after a while: agents meet
 * managers of both versions.
 */
import type { SimProcess } from "../../runtime/sim/simulation.ts";
import type { Fault } from "./fault.ts";

/** Longer than an agent takes to move between managers. */
const olderMsMax = 15_000;

export const managerOlder = {
  kind: "manager.older",
  share: 0.25,
  meanMs: [5_000, 20_000],
  begin({ later, managers, setOlder }) {
    const older = new Set<SimProcess>();
    const upgrade = (manager: SimProcess): void => {
      if (!older.delete(manager)) return;
      setOlder(manager, false);
      if (manager.isRunning) manager.restart();
    };
    return {
      strike(random) {
        const manager = random.pick(managers);
        if (!manager.isRunning || older.has(manager)) return;
        older.add(manager);
        setOlder(manager, true);
        manager.restart();
        later(random.between(2_000, olderMsMax), () => upgrade(manager));
      },
      heal() {
        for (const manager of older) upgrade(manager);
      },
    };
  },
} as const satisfies Fault;
