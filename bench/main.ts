/**
 * `npm run bench [-- --short] [-- --only GROUP] [-- --compare COMMIT]`: prints every table, or one group. `--short` uses small
 * loads, to check that each benchmark works; `--compare` prints ratios to the figures of another commit instead.
 */
import { cpus } from "node:os";
import { backupTable } from "./backup.ts";
import { commitNamed, compare } from "./compare.ts";
import { dockerApiTable } from "./docker-api.ts";
import { driversTable } from "./drivers.ts";
import { dataplaneTable } from "./dataplane.ts";
import { failoverTable } from "./failover.ts";
import { firstTaskTable } from "./first-task.ts";
import { historyTable } from "./history.ts";
import { inspectionTable } from "./inspection.ts";
import { jsonApiTable } from "./json-api.ts";
import { listTasksTable } from "./list-tasks.ts";
import { loadTables, type Load } from "./load.ts";
import { logsTable } from "./logs.ts";
import { microTables } from "./micro.ts";
import { natsTable } from "./nats.ts";
import { nodeLinksTables } from "./node-links.ts";
import { leafNodesTable } from "./leaf-nodes.ts";
import { slowLinkTable } from "./slow-link.ts";
import { policyTable } from "./policy.ts";
import { recordedRangeTable } from "./recorded-range.ts";
import { recordingTable } from "./recording.ts";
import { schedulerTable } from "./scheduler.ts";
import { ringCostTable } from "./ring-cost.ts";
import { simulationTable } from "./simulation.ts";
import { soakTable } from "./soak.ts";
import { stackTable } from "./stack.ts";
import { starvedTable } from "./starved.ts";
import { managerStartTable } from "./manager-start.ts";
import { startUpTable } from "./start-up.ts";
import { orExit, scriptArguments, UsageError, wholeNumber } from "../test/support/script-arguments.ts";
import { swarmkitTable } from "./swarmkit.ts";
import { uiTable } from "./ui.ts";
import { watchTable } from "./watch.ts";

const usage = `usage: npm run bench -- [--short] [--only GROUP] [--compare COMMIT [--rounds N]]

  --short             Small loads, to check that each benchmark works
  --compare COMMIT    Run in turns with COMMIT, in a checkout of its own, and print the ratio of each figure with its spread
  --rounds N          Number of turns of each commit (default 3)
  --only GROUP        One group: load, failover, micro, scheduler, watch, logs, stack, list, history, backup, dataplane, docker, drivers, json, policy,
                      inspection, simulation (rehearsals),
                      nats (our layer and the library's clients), node-links (nodes over gRPC and over NATS),
                      slow-link (the same over a slow link that loses packets), leaf-nodes (5,000 nodes of ten sites), recording, start (of a command), first-task (from a command to RUNNING),
                      manager-start, soak (an hour of changes),
                      swarmkit (SwarmKit's own agents), starved (the same on a small part of a core) or ui (needs Debian's chromium)`;
const { short, only, commit, rounds } = orExit(() => {
  const values = scriptArguments(usage, {
    short: { type: "boolean", default: false },
    only: { type: "string" },
    compare: { type: "string" },
    rounds: { type: "string", default: "3" },
  });
  return {
    ...values,
    commit: values.compare === undefined ? null : commitNamed(values.compare),
    rounds: wholeNumber("--rounds", values.rounds, usage, 1, 100),
  };
});

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
  "node-links": () => nodeLinksTables(short),
  "slow-link": () => slowLinkTable(short),
  "leaf-nodes": () => leafNodesTable(short),
  recording: async () => (await recordingTable(short)) + recordedRangeTable(short),
  swarmkit: () => swarmkitTable(short),
  starved: () => starvedTable(short),
  ui: () => uiTable(short),
  start: () => startUpTable(short),
  "first-task": () => firstTaskTable(short),
  "manager-start": () => managerStartTable(short),
  simulation: () => simulationTable(short),
  soak: () => soakTable(short),
  inspection: async () => `${await inspectionTable(short)}\n${await ringCostTable(short)}`,
};

orExit(() => {
  if (only !== undefined && groups[only] === undefined)
    throw new UsageError(`--only: unknown group "${only}"\n${usage}`);
});
process.stdout.write(`${new Date().toISOString()}, ${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}\n`);
const chosen = Object.keys(groups).filter((name) => only === undefined || only === name);
if (commit !== null) await compare(chosen, { commit, rounds, short });
else for (const name of chosen) process.stdout.write((await groups[name]?.()) ?? "");
