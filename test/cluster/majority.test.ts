// Managers whose NATS has lost its majority: none reports healthy, and all name the cause.
import test from "ava";
import { OperatorService, Trouble_Kind, WhyRequest } from "../../proto/gen/messages.ts";
import { ask, createService, runningTasks, sleepers, status } from "../fixtures/control-client.ts";
import { startAgent, startManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { natsCluster } from "../fixtures/nats-cluster.ts";
import { natsBinaries } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const cause = "NATS has no majority: 1 of 3 servers answers";

for (const binary of natsBinaries) {
  test.serial(
    `with two of three nats-servers dead, every manager is unhealthy, gives the reason everywhere, and recovers by itself (${binary})`,
    async (t) => {
      t.timeout(patient(600_000));
      const cluster = await natsCluster(t, binary);
      const ports = [await freePort(), await freePort()];
      const args = (at: number) => [
        ...cluster.urls.flatMap((url) => ["--nats", url]),
        "--metrics",
        `127.0.0.1:${ports[at] ?? 0}`,
      ];
      const first = await startManager(t, { args: args(0) });
      const second = await startManager(t, { args: args(1), join: first });
      const managers = [first, second];
      await first.patience();
      await startAgent(t, second);
      await createService(first, sleepers("web", 2));
      await until("two running tasks", async () => (await runningTasks(second)).length === 2);
      for (const manager of managers)
        await until("health before", async () => {
          const { healthy, troubles } = await status(manager);
          return healthy && troubles.length === 0;
        });

      await Promise.all([cluster.kill("n0"), cluster.kill("n2")]);
      const killedAt = performance.now();
      for (const [at, manager] of managers.entries()) {
        const said = await until("the truth", async () => {
          const answer = await status(manager);
          const found = answer.troubles.find(({ kind }) => kind === Trouble_Kind.NO_MAJORITY);
          return !answer.healthy && found?.blocking === true ? found.sentence : null;
        });
        t.log(`manager ${at} says so ${((performance.now() - killedAt) / 1_000).toFixed(1)} s after the kill`);
        t.is(said, cause);
        const health = await fetch(`http://127.0.0.1:${ports[at] ?? 0}/healthz`);
        t.is(health.status, 503);
        t.is(await health.text(), `${cause}\n`);
        const metrics = await (await fetch(`http://127.0.0.1:${ports[at] ?? 0}/metrics`)).text();
        t.regex(metrics, /^muster_trouble\{kind="no-majority"\} 1$/m);
        t.regex(metrics, /^muster_healthy 0$/m);
        t.regex(await manager.muster("info"), /Healthy: +no[^]*NATS has no majority: 1 of 3 servers answers/);
        const { reasons } = await ask(manager, OperatorService.methods.Why, WhyRequest.create({ subject: "web" }));
        t.regex(reasons[0]?.waitingFor ?? "", /1 of 3 servers answers/);
      }
      const refused = await t.throwsAsync(createService(second, sleepers("refused", 0), 20_000));
      t.regex(refused.message, /1 of 3 servers answers/);
      t.is((await runningTasks(second)).length, 2, "losing NATS ends no task");

      cluster.start("n0");
      cluster.start("n2");
      for (const manager of managers)
        await until("health again", async () => {
          const { healthy, troubles } = await status(manager);
          return healthy && troubles.every(({ blocking }) => !blocking);
        });
      await createService(first, sleepers("after", 0), 20_000);
    },
  );
}
