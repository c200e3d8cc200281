/** `muster simulate`: rehearse an operation on a copy of a cluster, in simulated time. */
import { UsageError } from "../lib/user-error.ts";
import { command, type Command } from "./command.ts";
import type { Shell } from "./shell.ts";
import { clusterFlags, readClusterFor, readScenarioFor, scenarioFlag } from "./simulate/inputs.ts";
import { readyDescription, readyScenarios } from "./simulate/ready-scenarios.ts";
import { reportFlags, reportSaved, write } from "./simulate/saved-reports.ts";
import { writeCluster } from "./simulate/write-cluster.ts";
import { formatTable } from "./table.ts";

export const simulate: Command = command({
  summary:
    "Prepare a rehearsal: check its files, save a copy of the running cluster, or list the ready scenarios. With one saved report, print it; with two of the same seeds, compare them.",
  operands: "[REPORT [REPORT]]",
  max: 2,
  completes: ["file"],
  options: {
    ...clusterFlags,
    scenario: scenarioFlag,
    save: { type: "string", value: "PATH", help: "Write the cluster as YAML to this file, without rehearsing" },
    check: { type: "boolean", help: "Check the files without rehearsing" },
    ...reportFlags,
    list: { type: "boolean", help: "List the ready scenarios" },
  },
  async run({ values, operands, shell }) {
    if (values.list === true) return listScenarios(shell);
    if (operands.length > 0) return reportSaved(shell, operands, values);
    if (values.check !== true && values.save === undefined)
      throw new UsageError("choose one of --check, --save and --list, or name a report");
    const { plan, remarks } = await readClusterFor(values, shell);
    for (const line of remarks) shell.remark(line);
    if (values.save !== undefined) write(values.save, writeCluster(plan, remarks));
    const { managers, nodes, services } = plan;
    const scenario = values.scenario === undefined ? null : readScenarioFor(values.scenario, plan);
    const steps = scenario === null ? "" : `; ${scenario.name}: ${scenario.steps.length} steps`;
    shell.print(`${managers} managers, ${nodes.length} nodes, ${services.length} services${steps}`);
  },
});

function listScenarios(shell: Shell): void {
  const rows = readyScenarios().map((name) => [name, readyDescription(name)]);
  shell.print(formatTable(["SCENARIO", "DESCRIPTION"], rows, shell.width ?? null));
}
