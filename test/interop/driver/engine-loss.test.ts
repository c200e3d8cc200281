// The docker driver while its engine is killed and restarted.
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { driverFields, taskFields } from "../../../drivers/docker/fields.ts";
import { DockerPlugin } from "../../../drivers/docker/plugin.ts";
import { objectSpec, readConfig } from "../../../edges/plugin/server/fields.ts";
import { NomadDriverConfig, TaskConfig } from "../../../proto/gen/nomad.ts";
import { isRecoverable } from "../../../runtime/recoverable.ts";
import type { RpcError } from "../../../runtime/ports/rpc.ts";
import { engineMissing, startEngine } from "../../fixtures/docker-engine.ts";
import { packed } from "../../fixtures/plugin-launch.ts";

const missing = engineMissing();
const title = "K1: the driver waits for a missing engine, then reports how its container exited";

if (missing !== null) test.skip(`${title}: ${missing}`, () => {});
else
  test(title, async (t) => {
    const engine = await startEngine(t);
    const state = mkdtempSync(join(engine.dir, "notes-"));
    t.teardown(() => rmSync(state, { recursive: true, force: true }));
    const plugin = new DockerPlugin();
    const settings = { endpoint: `unix://${join(engine.dir, "docker.sock")}`, state_dir: state };
    plugin.configure(readConfig(driverFields, packed(objectSpec(driverFields), settings)), NomadDriverConfig.create());
    const config = { image: "bb:1", network_mode: "none", init: true, command: "sleep", args: ["1000"] };
    const request = (id: string) => ({
      id,
      config: readConfig(taskFields, packed(objectSpec(taskFields), config)),
      task: TaskConfig.create({ id, name: "web" }),
      log: { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} },
      tell: () => {},
    });
    const run = await plugin.start(request("one"));
    t.is((await plugin.fingerprint()).health, "healthy");
    let hasEnded = false;
    void run.exited.then(() => (hasEnded = true));

    await engine.kill();
    t.not((await plugin.fingerprint()).health, "healthy");
    t.true(isRecoverable((await t.throwsAsync(plugin.start(request("two")))) as RpcError));
    await new Promise((resolve) => setTimeout(resolve, 500));
    t.false(hasEnded);

    // An engine ends containers that ran without it, unless live restore is on.
    await engine.start();
    const exit = await run.exited;
    t.true(exit.exitCode > 0 || (exit.err ?? "") !== "", JSON.stringify(exit));
    t.is((await plugin.fingerprint()).health, "healthy");
    await run.destroy();
    t.is(await engine.docker("ps", "-aq"), "");
  });
