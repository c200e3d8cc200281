// Containers of a stock engine that the agent runs through our own driver, as the README shows it.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { startAgent, startManager } from "../fixtures/muster.ts";
import { mockDriver } from "../fixtures/plugin-launch.ts";
import { until } from "../fixtures/until.ts";

const missing = engineMissing();
const title = "a container runs through the docker driver, is logged, looked into, and gone with its service";

if (missing !== null) test.skip(`${title}: ${missing}`, () => {});
else
  test(title, async (t) => {
    const [engine, manager] = await Promise.all([startEngine(t), startManager(t)]);
    const settings = { endpoint: `unix://${join(engine.dir, "docker.sock")}`, state_dir: join(engine.dir, "notes") };
    const agent = await startAgent(t, manager, {
      hostname: "one",
      args: [
        "--driver",
        `docker=${join(mockDriver, "../muster-driver-docker")}`,
        "--driver-config",
        `docker=${JSON.stringify(settings)}`,
      ],
    });
    const config = {
      image: "bb:1",
      network_mode: "none",
      init: true,
      command: "sh",
      args: ["-c", "echo from $NOMAD_JOB_NAME; echo kept >$NOMAD_TASK_DIR/file; sleep 1000"],
    };
    const create = ["service", "create", "-d", "--name", "web", "--driver", "docker", "--stop-signal", "SIGKILL"];
    await manager.muster(...create, "--driver-config", JSON.stringify(config));
    await until(
      "its output",
      async () => (await manager.muster("task", "logs", "--raw", "web.1")).trim() === "from web",
    );
    t.is((await engine.containers()).length, 1);
    t.is(await manager.muster("task", "exec", "web.1", "sh", "-c", "cat $NOMAD_TASK_DIR/file"), "kept");
    t.regex(await manager.muster("node", "inspect", "--pretty", "one"), /docker 0.1.0 healthy/);
    await manager.muster("service", "rm", "web");
    await until("nothing to be left", () => readdirSync(join(agent.dataDir, "allocs")).length === 0);
    await until("no container to be left", async () => (await engine.docker("ps", "-aq")) === "");
  });
