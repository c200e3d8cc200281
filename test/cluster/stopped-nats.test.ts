// A manager's own nats-server stopped by a signal: it hangs rather than exits, and holds its port.
import { readFileSync } from "node:fs";
import test from "ava";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import { createService, serviceNames, sleepers, status } from "../fixtures/control-client.ts";
import { startManager } from "../fixtures/muster.ts";
import { signal } from "../fixtures/nats-server.ts";
import { isAlive } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

/** A minute that counts only checks in which a busy machine had time, plus an ordinary start. */
const patienceMs = 300_000;

test("our nats-server stopped by a signal is reported as such, and restarted after a minute", async (t) => {
  t.timeout(patient(600_000));
  const manager = await startManager(t);
  await createService(manager, sleepers("before", 0));
  await until("health before", async () => (await status(manager)).healthy);
  const { pid = 0 } = manager.process.child;
  const children = (): number[] =>
    readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8")
      .trim()
      .split(" ")
      .filter((text) => text !== "")
      .map(Number);
  const server = children().find((child) => readFileSync(`/proc/${child}/comm`, "utf8").startsWith("nats-server")) ?? 0;
  t.true(server > 0);
  t.teardown(() => signal(server, "SIGKILL"));

  signal(server, "SIGSTOP");
  const stoppedAt = performance.now();
  const said = await until(
    "the truth",
    async () => {
      const { healthy, troubles } = await status(manager);
      const found = troubles.find(({ kind }) => kind === Trouble_Kind.SERVER_STUCK);
      return !healthy && found?.blocking === true ? found.sentence : null;
    },
    patienceMs,
  );
  t.log(`said after ${((performance.now() - stoppedAt) / 1_000).toFixed(1)} s: ${said}`);
  t.regex(said, new RegExp(`^nats-server \\(process ${server}\\) is stopped by a signal`));
  t.regex(said, /continue it, or it is restarted after 60 s$/);
  t.true(isAlive(server), "it is not killed before 60 s have passed");

  await until("another nats-server", () => !isAlive(server), patienceMs);
  t.log(`started again after ${((performance.now() - stoppedAt) / 1_000).toFixed(1)} s`);
  await until(
    "no trouble to remain",
    async () => {
      const { healthy, troubles } = await status(manager);
      return healthy && troubles.length === 0;
    },
    patienceMs,
  );
  await createService(manager, sleepers("after", 0));
  t.deepEqual(await serviceNames(manager), ["after", "before"]);
});
