/** `muster simulate`: rehearse an operation on a copy of a cluster, in simulated time. */
import { UsageError } from "../lib/user-error.ts";
import { command, formatOf, type Command } from "./command.ts";
import type { Shell } from "./shell.ts";
import { clusterFlags, readClusterFor, readScenarioFor, scenarioFlag } from "./simulate/inputs.ts";
import { readyDescription, readyScenarios } from "./simulate/ready-scenarios.ts";
import { plural } from "./simulate/report-texts.ts";
import { readable, rehearseFor, runFlags, type RunValues } from "./simulate/rehearse.ts";
import { reportFlags, reportSaved, write } from "./simulate/saved-reports.ts";
import { writeCluster } from "./simulate/write-cluster.ts";
import { formatTable } from "./table.ts";

export const simulate: Command = command({
  summary:
    "Rehearse a scenario on a copy of a cluster, in simulated time; no real node is touched. With one saved report, print it; with two of the same seeds, compare them.",
  operands: "[REPORT [REPORT]]",
  max: 2,
  completes: ["file"],
  options: {
    ...clusterFlags,
    scenario: scenarioFlag,
    ...runFlags,
    save: { type: "string", value: "PATH", help: "Write the cluster as YAML to this file, without rehearsing" },
    check: { type: "boolean", help: "Check the files without rehearsing" },
    ...reportFlags,
    list: { type: "boolean", help: "List the ready scenarios" },
  },
  async run({ values, operands, shell }) {
    // A mistake ends the command before anything runs.
    formatOf(values.format);
    if (values.list === true) return listScenarios(shell);
    if (operands.length > 0) return reportSaved(shell, operands, values);
    if (values.check !== true && values.save === undefined) return rehearse(values, shell);
    const { plan, remarks } = await readable(shell, () => readClusterFor(values, shell));
    for (const line of remarks) shell.remark(line);
    if (values.save !== undefined) write(values.save, writeCluster(plan, remarks));
    const { scenario: name } = values;
    const scenario = name === undefined ? null : await readable(shell, async () => readScenarioFor(name, plan));
    const steps = scenario === null ? "" : `; ${scenario.name}: ${plural(scenario.steps.length, "step")}`;
    const counts = [plural(plan.managers, "manager"), plural(plan.nodes.length, "node")];
    shell.print(`${counts.join(", ")}, ${plural(plan.services.length, "service")}${steps}`);
  },
});

async function rehearse(values: Partial<RunValues>, shell: Shell): Promise<void> {
  const { scenario } = values;
  if (scenario === undefined)
    throw new UsageError("--scenario is missing: name a ready scenario (see --list) or a file");
  return rehearseFor({ ...values, scenario }, shell);
}

function listScenarios(shell: Shell): void {
  const rows = readyScenarios().map((name) => [name, readyDescription(name)]);
  shell.print(formatTable(["SCENARIO", "DESCRIPTION"], rows, shell.width ?? null));
}
