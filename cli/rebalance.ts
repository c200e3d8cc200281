/**
 * `muster service rebalance`: shows whether other nodes suit tasks better, and turns moving them there on or off, for services
 * by name or for all. The setting is a label, so it is visible on the object.
 */
import { nodeNames } from "../machines/node-names.ts";
import { rebalanceLabels } from "../machines/orchestration/rebalancing/settings.ts";
import {
  Annotations,
  ClusterSpec,
  ControlService,
  OperatorService,
  PlanRebalanceRequest,
  PlanRebalanceResponse,
  ServiceSpec,
  UpdateClusterRequest,
  UpdateServiceRequest,
  type Reason,
} from "../proto/gen/messages.ts";
import { command, formatOf, plainFormat, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import {
  cluster,
  findService,
  listNodes,
  retryingConflicts,
  withManager,
  type ManagerClient,
} from "./manager-client.ts";
import type { Shell } from "./shell.ts";
import { formatTable } from "./table.ts";
import { durationText, millisecondsOf, parseCount, parsePositiveDuration } from "./values.ts";

const methods = ControlService.methods;

/** Flags for the cluster-wide limits, each with its label. */
const limits = [
  { flag: "settle", label: rebalanceLabels.settle, isSpan: true },
  { flag: "quiet", label: rebalanceLabels.quiet, isSpan: true },
  { flag: "round", label: rebalanceLabels.round, isSpan: false },
  { flag: "moves", label: rebalanceLabels.moves, isSpan: false },
  { flag: "window", label: rebalanceLabels.window, isSpan: true },
] as const;

type LimitFlags = { readonly [Flag in (typeof limits)[number]["flag"]]?: string | undefined };

function labelsOf(flags: LimitFlags, isOn: boolean | null): Readonly<Record<string, string>> {
  const labels: Record<string, string> = isOn === null ? {} : { [rebalanceLabels.mode]: isOn ? "on" : "off" };
  for (const { flag, label, isSpan } of limits) {
    const text = flags[flag];
    if (text === undefined) continue;
    if (isSpan) {
      const { nanos, seconds } = parsePositiveDuration(text, flag);
      labels[label] = nanos === 0 ? `${seconds}s` : `${Math.round(seconds * 1_000 + nanos / 1e6)}ms`;
    } else labels[label] = String(parseCount(text, flag));
  }
  return labels;
}

function withLabels(annotations: Annotations | null, labels: Readonly<Record<string, string>>): Annotations {
  const before = annotations ?? Annotations.create();
  return Annotations.patch(before, { labels: { ...before.labels, ...labels } });
}

async function labelCluster(client: ManagerClient, labels: Readonly<Record<string, string>>): Promise<void> {
  await retryingConflicts(async () => {
    const { id, meta, spec } = await cluster(client);
    const before = spec ?? ClusterSpec.create();
    const after = ClusterSpec.patch(before, { annotations: withLabels(before.annotations, labels) });
    const request = { clusterId: id, clusterVersion: meta?.version ?? null, spec: after };
    await client.call(methods.UpdateCluster, UpdateClusterRequest.create(request));
  });
}

async function labelService(client: ManagerClient, name: string, labels: Readonly<Record<string, string>>) {
  await retryingConflicts(async () => {
    const { id, meta, spec } = await findService(client, name);
    const before = spec ?? ServiceSpec.create();
    const after = ServiceSpec.patch(before, { annotations: withLabels(before.annotations, labels) });
    const request = { serviceId: id, serviceVersion: meta?.version ?? null, spec: after };
    await client.call(methods.UpdateService, UpdateServiceRequest.create(request));
  });
}

function reasonLine({ deadline, waitingFor }: Reason): string {
  const until = millisecondsOf(deadline);
  return until === null ? `  ${waitingFor}` : `  ${waitingFor} (until ${new Date(until).toISOString()})`;
}

function report(
  plan: PlanRebalanceResponse,
  nameOf: (nodeId: string) => string,
  width: number | null,
): readonly string[] {
  const { isPartial, moves, movesLeft, phase, reasons, window } = plan;
  const lines = [`rebalancing is ${phase}; ${movesLeft} moves may still be made within ${durationText(window)}`];
  if (reasons.length > 0) lines.push("waiting for:", ...reasons.map(reasonLine));
  if (moves.length === 0) return [...lines, "no task has a better node"];
  const cells = moves.map((move) => [
    String(move.round),
    `${move.serviceName || move.serviceId}.${move.slot}`,
    nameOf(move.fromNodeId),
    nameOf(move.nodeId),
    move.order,
    move.why,
  ]);
  lines.push("", formatTable(["ROUND", "TASK", "FROM", "TO", "ORDER", "WHY"], cells, width));
  if (isPartial) lines.push("(more moves follow)");
  return lines;
}

async function show(
  client: ManagerClient,
  shell: Shell,
  request: Partial<PlanRebalanceRequest>,
  format: string | undefined,
): Promise<void> {
  const plan = await client.call(OperatorService.methods.PlanRebalance, PlanRebalanceRequest.create(request));
  if (formatOf(format) === "json") shell.print(JSON.stringify(PlanRebalanceResponse.toJson(plan)));
  else shell.print(report(plan, nodeNames(await listNodes(client)), shell.width ?? null).join("\n"));
}

export const rebalance: Command = command({
  operands: "[SERVICE...]",
  summary:
    "Show which tasks would be better placed on other nodes, or let them move there with --on; without SERVICE, for all services.",
  options: {
    "dry-run": { type: "boolean", help: "Show the moves that would be made, even if rebalancing is off" },
    on: { type: "boolean", help: "Turn rebalancing on" },
    off: { type: "boolean", help: "Turn rebalancing off" },
    settle: {
      type: "string",
      value: "DURATION",
      help: "How long nodes and tasks must be unchanged before tasks move (default 1m)",
    },
    quiet: { type: "string", value: "DURATION", help: "How long nothing is moved after an incident (default 5m)" },
    round: { type: "string", value: "N", help: "Maximum number of concurrent moves in the cluster (default 5)" },
    moves: { type: "string", value: "N", help: "Maximum number of moves within --window (default 60)" },
    window: { type: "string", value: "DURATION", help: "Window in which --moves are counted (default 1h)" },
    format: plainFormat,
  },
  run: ({ values, operands, shell }) => {
    const { "dry-run": isDryRun = false, format, off = false, on = false, ...flags } = values;
    if (on && off) throw new UsageError("--on and --off are mutually exclusive");
    if (isDryRun && (on || off)) throw new UsageError("--dry-run changes nothing: leave out --on and --off");
    const labels = labelsOf(flags, on || off ? on : null);
    const hasLimits = limits.some(({ flag }) => flags[flag] !== undefined);
    if (hasLimits && (operands.length > 0 || isDryRun)) {
      throw new UsageError("limits apply to the whole cluster: set them without SERVICE and --dry-run");
    }
    return withManager(shell, async (client) => {
      if (Object.keys(labels).length > 0) {
        if (operands.length === 0) await labelCluster(client, labels);
        for (const operand of operands) {
          await labelService(client, operand, labels);
          shell.print(operand);
        }
        return;
      }
      const serviceIds: string[] = [];
      for (const operand of operands) serviceIds.push((await findService(client, operand)).id);
      await show(client, shell, { serviceIds, all: isDryRun && operands.length === 0 }, format);
    });
  },
});
