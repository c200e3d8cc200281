/**
 * Explains why a node's dataplane, or a task's network policy there, is waiting: the part of `muster why` that reads the
 * node's reports on its driver. A node without reports has no driver.
 */
import { DataplaneReport, Reason, type Resource, type Task, type Timestamp } from "../../proto/gen/messages.ts";
import { dataplaneDriverMachine } from "../dataplane/dataplane-driver.machine.ts";
import { reportKind } from "../policy/objects.ts";
import { isEnded, isWanted, observedState } from "../task.ts";
import { waitOf, type StatePath } from "../wait-meta.ts";

interface Said {
  readonly report: DataplaneReport;
  readonly since: Timestamp | null;
}

/** Null: the resource is not a dataplane report. */
export function reportOf(resource: Resource | undefined): DataplaneReport | null {
  if (resource?.kind !== reportKind || resource.payload === null) return null;
  return DataplaneReport.decode(resource.payload.value);
}

/** `resource`: the one with the node's id. */
export function explainNodeDataplane(resource: Resource | undefined): readonly Reason[] {
  const said = saidIn(resource);
  if (said === null) return [];
  const reason = stateReason(said, "");
  if (reason !== null) return [reason];
  const failing = [...said.report.endpoints, ...said.report.hostEndpoints].filter(({ status }) => status === "error");
  if (failing.length === 0) return [];
  return [
    Reason.create({
      waitingFor: `its dataplane driver to program ${failing.length === 1 ? "an endpoint" : `${failing.length} endpoints`}: the driver rejects its rules`,
      since: said.since,
      wokenBy: "a change of their policies, or the driver's next attempt",
      tried: failing.map(({ id, status }) => `${id}: ${status}`),
    }),
  ];
}

/** `where`: name of the task's node; `resource`: the one with its id. */
export function explainTaskPolicy(task: Task, where: string, resource: Resource | undefined): readonly Reason[] {
  const said = saidIn(resource);
  const hasEndpoint = task.networks.some(({ addresses }) => addresses.length > 0);
  if (said === null || !hasEndpoint || !isWanted(task) || isEnded(observedState(task))) return [];
  const state = stateReason(said, `its network policy on ${where}: `);
  if (state !== null) return [state];
  // Some drivers never report on endpoints.
  if (said.report.endpoints.length === 0) return [];
  const own = said.report.endpoints.filter(({ id }) => id.startsWith(`${task.id}/`));
  const failing = own.filter(({ status }) => status === "error");
  if (own.length > 0 && failing.length === 0) return [];
  return [
    Reason.create({
      waitingFor:
        own.length === 0
          ? `its network policy to be programmed on ${where}`
          : `its network policy to be programmed on ${where}, whose dataplane driver does not support all of it and blocks the rest`,
      since: said.since,
      wokenBy: own.length === 0 ? "the driver's report" : "a change of its policies, or the driver's next attempt",
    }),
  ];
}

function saidIn(resource: Resource | undefined): Said | null {
  const report = reportOf(resource);
  return report === null ? null : { report, since: resource?.meta?.updatedAt ?? null };
}

/** Reported states in which a node waits for its driver, as states of the chart. */
const waiting: ReadonlyMap<string, StatePath<typeof dataplaneDriverMachine>> = new Map([
  ["waiting", "waitForReady"],
  ["resync", "resync"],
  ["restarting", "restarting.waiting"],
]);

/** Null: the driver is in sync, or the node has none. */
function stateReason({ report, since }: Said, what: string): Reason | null {
  const { driver, reason, restarts, state } = report;
  const name = `the dataplane driver${driver === "" ? "" : ` ${driver}`}`;
  const because = reason === "" ? "" : `: ${reason}`;
  const tried = restarts === 0 ? [] : [`it was restarted ${restarts === 1 ? "once" : `${restarts} times`}`];
  const of = (waitingFor: string, wokenBy: string): Reason =>
    Reason.create({ waitingFor: what + waitingFor, wokenBy, since, tried });
  const stays = "; the previous rules stay in force";
  if (state === "stopped" || state === "failed")
    return of(`${name}, which is not running${because}`, `the next start of the agent${stays}`);
  const chartState = waiting.get(state);
  if (chartState === undefined) return null;
  const { waitingFor, wokenBy } = waitOf(dataplaneDriverMachine, chartState, { "the dataplane driver": name });
  return state === "waiting" ? of(waitingFor, wokenBy) : of(waitingFor + because, wokenBy + stays);
}
