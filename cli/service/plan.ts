/**
 * `muster service plan create|update|rollback|scale …`: shows what the command after `plan`, with the same flags, would do, and
 * where each task would run. Changes nothing.
 */
import { nodeNames } from "../../machines/node-names.ts";
import {
  OperatorService,
  PlanServiceRequest,
  PlanServiceResponse,
  ServiceSpec,
  type PlannedStep,
} from "../../proto/gen/messages.ts";
import { command, commandGroup, formatOf, plainFormat, type Command } from "../command.ts";
import { findService, listNodes, withManager, type ManagerClient } from "../manager-client.ts";
import { eachOperand } from "../operands.ts";
import { parseScale, scaledTo } from "../scaled-spec.ts";
import { withDriverConfig } from "./driver.ts";
import { createFlags, refuseOtherFlags, updateFlags } from "./flags.ts";
import { lookupsFor } from "./references.ts";
import { changedSpec, newSpec } from "./spec.ts";
import type { Shell } from "../shell.ts";
import { formatTable } from "../table.ts";

const format = plainFormat;

function stepCells(step: PlannedStep, name: string, nameOf: (nodeId: string) => string): readonly string[] {
  const { batch, fromNodeId, kind, nodeId, reasons, slot } = step;
  const node = nodeId === "" ? (kind === "remove" ? "" : "pending") : nameOf(nodeId);
  const place = slot === 0 ? nameOf(nodeId || fromNodeId) : String(slot);
  return [
    batch === 0 ? "at once" : String(batch),
    kind,
    `${name}.${place}`,
    nameOf(fromNodeId),
    node,
    reasons.join("; "),
  ];
}

/** Human-readable report: totals, steps in order, nodes, and pending tasks. */
function report(
  plan: PlanServiceResponse,
  nameOf: (nodeId: string) => string,
  width: number | null,
): readonly string[] {
  const { created, kept, name, nodes, notes, removed, replaced, steps, stepsOmitted, waits } = plan;
  const lines = [`${name}: ${created} new, ${replaced} replaced, ${removed} removed, ${kept} unchanged`];
  if (steps.length > 0) {
    const cells = steps.map((step) => stepCells(step, name, nameOf));
    lines.push("", formatTable(["BATCH", "ACTION", "TASK", "FROM", "TO", "WHY"], cells, width));
    if (stepsOmitted > 0) lines.push(`and ${stepsOmitted} more`);
  }
  if (nodes.length > 0) {
    const cells = nodes.map((node) => [nameOf(node.id), String(node.before), String(node.after)]);
    lines.push("", formatTable(["NODE", "NOW", "THEN"], cells, width));
  }
  for (const wait of waits) {
    lines.push("", `${wait.tasks} ${wait.tasks === 1 ? "task" : "tasks"} would stay pending: ${wait.text}`);
    lines.push(...wait.nodes.map((node) => `  ${node}`));
  }
  if (notes.length > 0) lines.push("", ...notes.map((note) => `note: ${note}`));
  return lines;
}

async function show(
  client: ManagerClient,
  shell: Shell,
  request: Partial<PlanServiceRequest>,
  chosen: string | undefined,
): Promise<void> {
  const isJson = formatOf(chosen) === "json";
  const plan = await client.call(OperatorService.methods.PlanService, PlanServiceRequest.create(request));
  if (isJson) shell.print(JSON.stringify(PlanServiceResponse.toJson(plan)));
  else shell.print(report(plan, nodeNames(await listNodes(client)), shell.width ?? null).join("\n"));
}

const create = command({
  operands: "[IMAGE|COMMAND] [ARG...]",
  stopsAtOperand: true,
  summary: "Show what 'service create' with the same flags would do.",
  options: { ...createFlags, format },
  run: ({ values: { format: chosen, ...values }, operands, shell }) =>
    withManager(shell, async (client) => {
      const spec = newSpec(await withDriverConfig(values), operands, await lookupsFor(client, values));
      await show(client, shell, { spec }, chosen);
    }),
});

const update = command({
  operands: "SERVICE",
  min: 1,
  max: 1,
  summary: "Show what 'service update' with the same flags would do.",
  options: { ...updateFlags, format },
  run: ({ values: { format: chosen, ...values }, operands, shell }) =>
    withManager(shell, async (client) => {
      const isRollback = values.rollback === true;
      if (isRollback) refuseOtherFlags(values);
      const { id, spec } = await findService(client, operands[0] as string);
      const lookups = await lookupsFor(client, values);
      const flags = await withDriverConfig(values);
      const changed = isRollback ? null : changedSpec(spec ?? ServiceSpec.create({}), flags, lookups);
      await show(client, shell, { serviceId: id, spec: changed, rollback: isRollback }, chosen);
    }),
});

const rollback = command({
  operands: "SERVICE",
  min: 1,
  max: 1,
  summary: "Show what 'service rollback' would do.",
  options: { format },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const { id } = await findService(client, operands[0] as string);
      await show(client, shell, { serviceId: id, rollback: true }, values.format);
    }),
});

const scale = command({
  operands: "SERVICE=REPLICAS [SERVICE=REPLICAS...]",
  min: 1,
  summary: "Show what 'service scale' would do, for each service by itself.",
  options: { format },
  run: ({ values, operands, shell }) => {
    const wanted = operands.map(parseScale);
    return withManager(shell, (client) =>
      eachOperand(wanted, async ({ count, name }) => {
        const { id, spec } = await findService(client, name);
        const after = scaledTo(spec ?? ServiceSpec.create({}), count);
        await show(client, shell, { serviceId: id, spec: after }, values.format);
      }),
    );
  },
});

export const plan: Command = commandGroup(
  "Show what creating or changing a service would do, and where each task would run, without doing it.",
  { create, update, rollback, scale },
);
