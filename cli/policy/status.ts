/** Dataplane reports of nodes: `muster policy status`, and a part of `muster node inspect`. */
import { nodeNames } from "../../machines/node-names.ts";
import { reportOf } from "../../machines/explain/dataplane.ts";
import { reportKind } from "../../machines/policy/objects.ts";
import {
  ControlService,
  DataplaneReport,
  ListResourcesRequest,
  ListResourcesRequest_Filters,
  type DataplaneEndpointReport,
} from "../../proto/gen/messages.ts";
import { command, listingOptions } from "../command.ts";
import { listNodes, withManager, type ManagerClient } from "../manager-client.ts";
import { printListing } from "../table.ts";
import { humanDuration } from "../../lib/human-duration.ts";

/** By node id. */
export type DataplaneReports = ReadonlyMap<string, DataplaneReport>;

export async function readReports(client: ManagerClient): Promise<DataplaneReports> {
  const filters = ListResourcesRequest_Filters.create({ kind: reportKind });
  const { resources } = await client.call(
    ControlService.methods.ListResources,
    ListResourcesRequest.create({ filters }),
  );
  const reports = new Map<string, DataplaneReport>();
  for (const resource of resources) {
    const report = reportOf(resource);
    if (report !== null) reports.set(resource.id, report);
  }
  return reports;
}

/** For `muster node inspect`; empty for a node without a report. */
export function dataplanePart(report: DataplaneReport | undefined): { readonly Dataplane?: object } {
  if (report === undefined) return {};
  const { driver, endpoints, hostEndpoints, reason, restarts, state } = report;
  const since = driverSince(report);
  const statuses = (of: readonly DataplaneEndpointReport[]): Readonly<Record<string, string>> =>
    Object.fromEntries(of.map(({ id, status: text }) => [id, text]));
  return {
    Dataplane: {
      State: state,
      ...(reason === "" ? {} : { Reason: reason }),
      Driver: driver,
      ...(since === "" ? {} : { DriverSince: since }),
      Restarts: restarts,
      Endpoints: statuses(endpoints),
      HostEndpoints: statuses(hostEndpoints),
    },
  };
}

/** Start time of the driver's process as it reported it; empty if it did not. */
export function driverSince({ driverSince: since }: DataplaneReport): string {
  return since === 0 ? "" : new Date(since * 1_000).toISOString();
}

export function tally(endpoints: readonly DataplaneEndpointReport[]): string {
  const counts = Map.groupBy(endpoints, ({ status }) => status);
  return [...counts]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([status, of]) => `${of.length} ${status}`)
    .join(", ");
}

export const status = command({
  summary: "Show the state of each node's dataplane: its driver and the status of its endpoints.",
  options: listingOptions,
  examples: [{ line: "muster policy status", does: "one line per node" }],
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const [nodes, reports] = await Promise.all([listNodes(client), readReports(client)]);
      const nameOf = nodeNames(nodes);
      const none = DataplaneReport.create({ state: "none" });
      const rows = nodes
        .map((node) => ({ node, report: reports.get(node.id) ?? none }))
        .toSorted((a, b) => (nameOf(a.node.id) < nameOf(b.node.id) ? -1 : 1))
        .map(({ node, report }) => ({
          id: node.id,
          cells: [
            nameOf(node.id),
            report.state === "" ? "none" : report.state,
            tally(report.endpoints),
            tally(report.hostEndpoints),
            driverText(report, shell.now()),
            String(report.restarts),
            report.reason,
          ],
          object: () => ({ node: node.id, ...DataplaneReport.toJson(report) }),
        }));
      const headings = ["NODE", "DATAPLANE", "ENDPOINTS", "HOST ENDPOINTS", "DRIVER", "RESTARTS", "REASON"];
      printListing(shell, { headings, rows }, values);
    }),
});

function driverText({ driver, driverSince: since }: DataplaneReport, now: number): string {
  const age = humanDuration(Math.max(0, now - since * 1_000)).toLowerCase();
  return [driver, ...(since === 0 ? [] : [`up ${age}`])].filter((word) => word !== "").join(", ");
}
