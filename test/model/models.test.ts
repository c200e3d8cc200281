// Every chart has a model, whose paths reach its states and transitions.
import { readdirSync, readFileSync } from "node:fs";
import test from "ava";
import { allCharts } from "../../cli/charts.ts";

/** Files below machines/ whose charts have no model. */
const without: readonly string[] = [
  "agent/certificate.machine.ts",
  "agent/manager-stream.machine.ts",
  "agent/session.machine.ts",
  "allocation/allocator.machine.ts",
  "certificates/certificate.machine.ts",
  "certificates/manager-certificate.machine.ts",
  "certificates/root-rotation.machine.ts",
  "dataplane/dataplane-driver.machine.ts",
  "discovery/name-server.machine.ts",
  "dispatcher/assignments.machine.ts",
  "dispatcher/gossip.machine.ts",
  "dispatcher/mass-down-breaker.machine.ts",
  "dispatcher/node-watch.machine.ts",
  "dispatcher/session.machine.ts",
  "driver/health-check.machine.ts",
  "driver/plugin.machine.ts",
  "json/connection.machine.ts",
  "json/watcher.machine.ts",
  "keys/data-key.machine.ts",
  "keys/key-fetch.machine.ts",
  "keys/key-rotation.machine.ts",
  "keys/manager-lock.machine.ts",
  "ledger/lease.machine.ts",
  "ledger/ledger.machine.ts",
  "logs/subscription.machine.ts",
  "manager/demotion.machine.ts",
  "manager/manager-watch.machine.ts",
  "manager/membership.machine.ts",
  "manager/progress.machine.ts",
  "networks/programming.machine.ts",
  "orchestration/enforcer.machine.ts",
  "orchestration/global.machine.ts",
  "orchestration/job.machine.ts",
  "orchestration/reaper.machine.ts",
  "orchestration/rebalance.machine.ts",
  "orchestration/replicated.machine.ts",
  "orchestration/restart.machine.ts",
  "orchestration/schedule.machine.ts",
  "scheduling/scheduler.machine.ts",
  "task-call.machine.ts",
  "task.machine.ts",
  "volumes/csi-plugin.machine.ts",
  "volumes/node-volume.machine.ts",
  "volumes/publication.machine.ts",
  "volumes/volume.machine.ts",
  "watch/watch.machine.ts",
];

test("each chart has a model", async (t) => {
  const folder = new URL("./", import.meta.url);
  const models = readdirSync(folder).map((file) => readFileSync(new URL(file, folder), "utf8"));
  const files = (await allCharts()).map(({ file }) => file);
  const unmodelled = files.filter((file) => !models.some((text) => text.includes(`"../../machines/${file}"`)));
  t.deepEqual(unmodelled, without);
});
