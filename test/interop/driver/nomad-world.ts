/** Nomad's own drivers (`npm run peers`) under an agent of ours. */
import { chmodSync, globSync, readFileSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ExecutionContext } from "ava";
import { startAgent, startManager, tempDir, type TestAgent, type TestManager } from "../../fixtures/muster.ts";
import { kill } from "../../fixtures/processes.ts";
import { until } from "../../fixtures/until.ts";
import { unplaceChroot } from "../../../linux/task-home/chroot.ts";
import { peerPath } from "../go/peers.ts";

/** An executable that serves one of Nomad's drivers. */
function driver(t: ExecutionContext, name: string): string {
  const path = join(tempDir(t, "nomad"), name);
  writeFileSync(path, `#!/bin/sh\nexec ${peerPath("nomad-driver")} ${name}\n`);
  chmodSync(path, 0o755);
  return path;
}

interface Row {
  readonly ID: string;
  readonly CurrentState: string;
  readonly Error: string;
}

export const tasksOf = (manager: TestManager, service: string): Promise<readonly Row[]> =>
  manager.json<Row>("service", "ps", service, "--no-trunc");

export interface NomadWorld {
  readonly manager: TestManager;
  readonly agent: TestAgent;
}

/** A manager, and an agent with that driver; `config`: the driver's own. */
export async function nomadWorld(t: ExecutionContext, name: string, config: object | null): Promise<NomadWorld> {
  const manager = await startManager(t);
  await manager.patience();
  const args = ["--driver", `${name}=${driver(t, name)}`];
  if (config !== null) args.push("--driver-config", `${name}=${JSON.stringify(config)}`);
  // As `nobody`: Nomad's exec gives root's tasks all capabilities, some of which this machine may lack.
  const agent = await startAgent(t, manager, { hostname: "one", args, tasksAs: "default" });
  // Cleans up after a failed test.
  t.teardown(async () => {
    for (const id of readdirSync(join(agent.dataDir, "allocs")))
      for (const folder of globSync(`/sys/fs/cgroup/*/nomad/${id}.*`)) {
        for (const pid of readFileSync(join(folder, "cgroup.procs"), "utf8").split("\n"))
          if (pid !== "") kill(Number(pid));
        await until("its processes to exit", () => readFileSync(join(folder, "cgroup.procs"), "utf8") === "");
        rmdirSync(folder);
      }
    await unplaceChroot(agent.dataDir);
  });
  return { manager, agent };
}

/** Creates the service `long` with one task. */
export const createLong = (
  manager: TestManager,
  name: string,
  config: object,
  ...flags: readonly string[]
): Promise<string> =>
  manager.muster(
    "service",
    "create",
    "-d",
    "--name",
    "long",
    "--driver",
    name,
    "--stop-grace-period",
    "1s",
    ...flags,
    "--driver-config",
    JSON.stringify(config),
  );
