/** `muster import --move` and `--move-back`: one engine, from the Swarm to this cluster or the other way round. */
import { UserError } from "../../lib/user-error.ts";
import { listServices, serviceName, withManager } from "../manager-client.ts";
import type { Shell } from "../shell.ts";
import { moveEngine } from "./move.ts";
import { movedEngine } from "./moved-engine.ts";
import { ownSide } from "./own-side.ts";
import { swarmSide } from "./swarm-side.ts";
import { readSwarm } from "./swarm.ts";

interface Moving {
  /** Endpoint of a manager of the Swarm. */
  readonly from: string;
  /** Endpoint of the engine. */
  readonly engine: string;
  readonly isBack: boolean;
  readonly timeoutMs: number;
  /** Whether services that were not taken over may be left behind. */
  readonly isPartial: boolean;
}

/** An interrupt brings the engine back; a second one ends the command where it is. Rejects with UserError. */
export async function moveOne(moving: Moving, shell: Shell): Promise<void> {
  const { engine: endpoint, from, isBack, isPartial, timeoutMs } = moving;
  const swarm = await swarmSide(from);
  const interrupted = new AbortController();
  const interrupt = (): void => interrupted.abort();
  for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, interrupt);
  try {
    const engine = await movedEngine(endpoint);
    try {
      const { nodeId } = await engine.membership();
      if (nodeId === swarm.managerId)
        throw new UserError(
          `${endpoint} is the manager that --from names: name another manager of the Swarm; the last one moves by hand (docs/moving-from-swarm.md)`,
        );
      await withManager(shell, async (client) => {
        const own = ownSide(client);
        if (!isBack && !isPartial) await refuseMissing(from, (await listServices(client)).map(serviceName));
        await moveEngine({
          engine,
          from: isBack ? own : swarm,
          to: isBack ? swarm : own,
          timeoutMs,
          signal: interrupted.signal,
          say: (text) => shell.print(text),
          now: () => performance.now(),
          wait: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
        });
      });
    } finally {
      engine.close();
    }
  } finally {
    for (const name of ["SIGINT", "SIGTERM"] as const) process.off(name, interrupt);
    swarm.close();
  }
}

async function refuseMissing(from: string, names: readonly string[]): Promise<void> {
  const { services } = await readSwarm(from);
  const missing = services.map(({ name }) => name).filter((name) => !names.includes(name));
  if (missing.length > 0)
    throw new UserError(
      `these services of the Swarm are not in this cluster: ${missing.join(", ")}: run 'muster import' without --move first, or use --partial to leave them behind`,
    );
}
