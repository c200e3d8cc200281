// Nomad's mock driver under our agent: the user sees how its tasks exit and why starts are rejected.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import anyTest from "ava";
import { until } from "../../fixtures/until.ts";
import { peersMissing } from "../go/peers.ts";
import { createLong, nomadWorld, tasksOf, type NomadWorld } from "./nomad-world.ts";

const missing = peersMissing("nomad-driver") ?? (process.getuid?.() === 0 ? null : "needs root");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

const stateOf = async ({ manager }: NomadWorld, state: string): Promise<{ readonly Error: string } | null> =>
  (await tasksOf(manager, "long")).find(({ CurrentState }) => CurrentState.startsWith(state)) ?? null;

async function leavesNothing({ agent, manager }: NomadWorld): Promise<void> {
  await manager.muster("service", "rm", "long");
  await until("everything to be removed", () => readdirSync(join(agent.dataDir, "allocs")).length === 0);
}

test("Nomad's mock driver runs a task, and a start that it rejects shows the driver's own words", async (t) => {
  const world = await nomadWorld(t, "mock", null);
  const { manager } = world;
  await createLong(manager, "mock_driver", { run_for: "1s", exit_code: 3 }, "--restart-condition", "none");
  const failed = await until("the task to end", () => stateOf(world, "Failed"));
  t.is(failed.Error, '"task: non-zero exit (3)"');
  await leavesNothing(world);
  const refusal = { run_for: "1s", start_error: "out of luck" };
  await createLong(manager, "mock_driver", refusal, "--restart-condition", "none");
  const refused = await until("the start to be rejected", () => stateOf(world, "Failed"));
  t.regex(refused.Error, /^"mock_driver: .*out of luck/);
  await leavesNothing(world);
  await createLong(manager, "mock_driver", { run_for: "1h" });
  await until("the task to run", () => stateOf(world, "Running"));
  await leavesNothing(world);
});
