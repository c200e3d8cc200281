/** `muster doctor`: examines this machine, and the cluster if a manager can be reached, and says what to do about each finding. */
import { CommandEnded, UserError } from "../lib/user-error.ts";
import { clockDifference } from "../machines/manager/clock-difference.ts";
import { version } from "../lib/version.ts";
import { CompareClocksRequest, OperatorService, StatusRequest } from "../proto/gen/messages.ts";
import { timeMs } from "../proto/time.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import { defaultDataDir } from "../processes/data-dir.ts";
import { answers, knownHosts } from "../processes/last-host.ts";
import { command, formatOf, plainFormat, type Command } from "./command.ts";
import { clusterFindings, type ClocksFacts } from "./doctor/cluster.ts";
import { problem, type Finding } from "./doctor/finding.ts";
import { machineFindings } from "./doctor/machine.ts";
import { probeMachine } from "./doctor/probes.ts";
import { cluster, listNodes, withManager, type ManagerClient } from "./manager-client.ts";
import type { Shell } from "./shell.ts";

/** SwarmKit's port, and the next one, where a manager's own nats-server listens. */
const managerPorts = [2377, 2378];

export const doctor: Command = command({
  max: 0,
  summary:
    "Examine this machine and the cluster, and say what to do about each finding. The exit status is 1 if there is a problem.",
  options: {
    "data-dir": {
      type: "string",
      value: "DIR",
      help: "Data directory of the manager or agent on this machine: its disk is measured (default: that of 'muster up')",
    },
    machine: { type: "boolean", help: "Examine this machine only" },
    cluster: { type: "boolean", help: "Examine the cluster only" },
    format: plainFormat,
  },
  async run({ values, shell }) {
    const format = formatOf(values.format);
    const { cluster: isClusterOnly = false, machine: isMachineOnly = false } = values;
    const findings = [
      ...(isClusterOnly ? [] : await ofMachine(values["data-dir"] ?? defaultDataDir())),
      ...(isMachineOnly ? [] : await ofCluster(shell, isClusterOnly)),
    ];
    if (format === "json") for (const finding of findings) shell.print(JSON.stringify(finding));
    else for (const line of findings.flatMap(linesOf)) shell.print(line);
    const problems = findings.filter(({ level }) => level === "problem").length;
    const warnings = findings.filter(({ level }) => level === "warning").length;
    if (format === "table") shell.remark(summary(problems, warnings));
    if (problems > 0) throw new CommandEnded(1);
  },
});

function summary(problems: number, warnings: number): string {
  const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;
  return `${counted(problems, "problem")}, ${counted(warnings, "warning")}`;
}

const marks = { ok: "ok     ", warning: "warning", problem: "PROBLEM" } as const;

function linesOf({ check, found, level, remedy }: Finding): readonly string[] {
  return [`${marks[level]}  ${check}: ${found}`, ...(remedy === "" ? [] : [`         → ${remedy}`])];
}

async function ofMachine(dataDir: string): Promise<readonly Finding[]> {
  const running = await Promise.all(knownHosts().map(answers));
  return machineFindings(await probeMachine(dataDir, running.includes(true) ? null : managerPorts));
}

async function ofCluster(shell: Shell, isRequired: boolean): Promise<readonly Finding[]> {
  try {
    return await withManager(shell, async (client) => {
      const [status, found, nodes, clocks] = await Promise.all([
        client.call(OperatorService.methods.Status, StatusRequest.create({})),
        cluster(client),
        listNodes(client),
        compareClocks(client, shell),
      ]);
      return clusterFindings({ status, cluster: found, nodes, clocks, nowMs: shell.now(), version });
    });
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    if (isRequired) return [problem("manager", error.message, "name a manager with --host or --context")];
    // A machine without a manager is not ill.
    return [{ check: "cluster", level: "ok", found: `not examined: ${error.message}`, remedy: "" }];
  }
}

/** Null for a manager whose version does not have this call. */
async function compareClocks(client: ManagerClient, shell: Shell): Promise<ClocksFacts | null> {
  try {
    const { clocks } = await client.call(OperatorService.methods.CompareClocks, CompareClocksRequest.create({}));
    // Apart from those calls, which take a while.
    const askedAtMs = shell.now();
    const begunMs = performance.now();
    const { answeredAt } = await client.call(OperatorService.methods.Status, StatusRequest.create({}));
    const tookMs = performance.now() - begunMs;
    const { aheadMs, errorMs } = clockDifference({ askedAtMs, tookMs, theirsMs: timeMs(answeredAt) });
    return { managers: clocks, own: { aheadMs: -aheadMs, errorMs } };
  } catch (error) {
    if (error instanceof RpcError && error.code === Status.UNIMPLEMENTED) return null;
    throw error;
  }
}
