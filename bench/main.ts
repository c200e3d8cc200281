/**
 * `npm run bench [-- --short] [-- --only GROUP]`: prints every table, or one group. `--short` uses small loads, to check that
 * each benchmark works.
 */
import { cpus } from "node:os";
import { backupTable } from "./backup.ts";
import { dockerApiTable } from "./docker-api.ts";
import { driversTable } from "./drivers.ts";
import { dataplaneTable } from "./dataplane.ts";
import { failoverTable } from "./failover.ts";
import { historyTable } from "./history.ts";
import { inspectionTable } from "./inspection.ts";
import { jsonApiTable } from "./json-api.ts";
import { listTasksTable } from "./list-tasks.ts";
import { loadTables, type Load } from "./load.ts";
import { logsTable } from "./logs.ts";
import { microTables } from "./micro.ts";
import { natsTable } from "./nats.ts";
import { policyTable } from "./policy.ts";
import { recordedRangeTable } from "./recorded-range.ts";
import { recordingTable } from "./recording.ts";
import { schedulerTable } from "./scheduler.ts";
import { ringCostTable } from "./ring-cost.ts";
import { simulationTable } from "./simulation.ts";
import { stackTable } from "./stack.ts";
import { managerStartTable } from "./manager-start.ts";
import { startUpTable } from "./start-up.ts";
import { orExit, scriptArguments, UsageError } from "../test/support/script-arguments.ts";
import { swarmkitTable } from "./swarmkit.ts";
import { uiTable } from "./ui.ts";
import { watchTable } from "./watch.ts";

const usage = `usage: npm run bench -- [--short] [--only GROUP]

  --short         Small loads, to check that each benchmark works
  --only GROUP    One group: load, failover, micro, scheduler, watch, logs, stack, list, history, backup, dataplane, docker, drivers, json, policy, inspection,
                  simulation (rehearsals),
                  nats (our layer and the library's clients), recording, start (of a command), manager-start,
                  swarmkit (SwarmKit's own agents) or ui (needs Debian's chromium)`;
const { short, only } = orExit(() =>
  scriptArguments(usage, { short: { type: "boolean", default: false }, only: { type: "string" } }),
);

const loads: readonly Load[] = short
  ? [{ agents: 20, tasks: 200, batch: false, idleSeconds: 0 }]
  : [
      { agents: 100, tasks: 2_000, batch: false, idleSeconds: 0 },
      { agents: 200, tasks: 20_000, batch: false, idleSeconds: 0 },
      { agents: 200, tasks: 20_000, batch: true, idleSeconds: 0 },
      { agents: 1_000, tasks: 10_000, batch: false, idleSeconds: 20 },
      { agents: 5_000, tasks: 0, batch: false, idleSeconds: 30 },
    ];

const groups: Readonly<Record<string, () => Promise<string>>> = {
  load: () => loadTables(loads),
  failover: () => failoverTable(short),
  micro: () => microTables(short),
  scheduler: () => schedulerTable(short),
  watch: () => watchTable(short),
  logs: () => logsTable(short),
  stack: () => stackTable(short),
  list: () => listTasksTable(short),
  history: () => historyTable(short),
  backup: () => backupTable(short),
  dataplane: () => dataplaneTable(short),
  docker: () => dockerApiTable(short),
  drivers: () => driversTable(short),
  json: () => jsonApiTable(short),
  policy: () => policyTable(short),
  nats: () => natsTable(short),
  recording: async () => (await recordingTable(short)) + recordedRangeTable(short),
  swarmkit: () => swarmkitTable(short),
  ui: () => uiTable(short),
  start: () => startUpTable(short),
  "manager-start": () => managerStartTable(short),
  simulation: () => simulationTable(short),
  inspection: async () => `${await inspectionTable(short)}\n${await ringCostTable(short)}`,
};

orExit(() => {
  if (only !== undefined && groups[only] === undefined)
    throw new UsageError(`--only: unknown group "${only}"\n${usage}`);
});
process.stdout.write(`${new Date().toISOString()}, ${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}\n`);
for (const [name, print] of Object.entries(groups))
  if (only === undefined || only === name) process.stdout.write(await print());
