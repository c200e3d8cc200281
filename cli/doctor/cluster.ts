/** The checks of `muster doctor` on a cluster, by what one of its managers says. */
import { X509Certificate } from "node:crypto";
import { isManagersNode } from "../../machines/manager/role.ts";
import { isReady } from "../../machines/node.ts";
import { NodeRole, type Cluster, type ManagerClock, type Node, type StatusResponse } from "../../proto/gen/messages.ts";
import { nodeName } from "../manager-client.ts";
import { humanDuration } from "../../lib/human-duration.ts";
import { ok, problem, warning, type Finding } from "./finding.ts";

export interface ClusterFacts {
  /** Of the managers, and of this machine; null: the manager's version does not compare them. */
  readonly clocks: ClocksFacts | null;
  readonly status: StatusResponse;
  readonly cluster: Cluster;
  readonly nodes: readonly Node[];
  readonly nowMs: number;
  /** The version of this command. */
  readonly version: string;
}

export interface ClocksFacts {
  /** Clocks of other managers, relative to that of the answering one. */
  readonly managers: readonly ManagerClock[];
  /** This machine's, in the same way; milliseconds. */
  readonly own: { readonly aheadMs: number; readonly errorMs: number };
}

/** Milliseconds. Times of tasks on different nodes are compared by eye; and a machine that joins may differ by five minutes. */
const clocksApartMs = 1_000;
const clocksTooFarApartMs = 60_000;
/** A healthy node renews at 50 to 80 % of its certificate's lifetime. */
const lateShare = 0.1;
/** Time to rotate the root at leisure, in milliseconds. */
const rootLeftMsMin = 90 * 86_400_000;
/** Names in one sentence. */
const namesMax = 5;

function named(nodes: readonly Node[]): string {
  const names = nodes.slice(0, namesMax).map((node) => nodeName(node) || node.id);
  return nodes.length > namesMax ? `${names.join(", ")} and ${nodes.length - namesMax} more` : names.join(", ");
}

export function clusterFindings(facts: ClusterFacts): readonly Finding[] {
  return [
    ...manager(facts),
    leader(facts),
    ...copies(facts),
    managers(facts),
    ...clocks(facts),
    nodes(facts),
    ...hostnames(facts),
    ...certificates(facts),
    root(facts),
    versions(facts),
  ];
}

function manager({ status }: ClusterFacts): readonly Finding[] {
  const troubles = status.troubles.map(({ blocking, sentence }) =>
    (blocking ? problem : warning)("manager", sentence, "see 'muster info' on this manager, and its log"),
  );
  const guarantees = status.warnings.map((sentence) =>
    warning("nats", sentence.replace(/\.$/, ""), "see 'Several managers' in the documentation"),
  );
  const found = `${status.managerId} at ${status.addr} ${status.healthy ? "makes progress" : "makes no progress"}`;
  if (status.healthy) return [ok("manager", found), ...troubles, ...guarantees];
  return [problem("manager", found, "see 'muster info' on this manager, and its log"), ...troubles, ...guarantees];
}

function leader({ status }: ClusterFacts): Finding {
  if (status.leaderId !== "") return ok("leader", `${status.leaderId} leads`);
  return problem("leader", "no manager leads: nothing can be changed", "start the other managers and nats-servers");
}

/** Which copy is missing is among the manager's troubles. */
function copies({ status }: ClusterFacts): readonly Finding[] {
  const { current, wanted } = status.logCopies ?? { current: 0, wanted: 0 };
  // A single copy is among the warnings, and a silent log among the troubles.
  if (wanted <= 1) return [];
  const found = `${current} of ${wanted} copies of the log are current`;
  return [
    current < wanted ? warning("copies", found, "start the manager or nats-server that is away") : ok("copies", found),
  ];
}

function managers({ nodes: all }: ClusterFacts): Finding {
  const found = all.filter(({ role }) => role === NodeRole.MANAGER);
  const away = found.filter((node) => !isReady(node) || node.managerStatus?.reachability === 1);
  if (away.length === 0)
    return ok("managers", `${found.length} ${found.length === 1 ? "manager" : "managers"}, all reachable`);
  return warning(
    "managers",
    `not reachable: ${named(away)}`,
    "start them, or demote and remove those that will not come back ('muster node demote', 'muster node rm')",
  );
}

/** The two clocks that differ most, beyond what the measurement may be wrong by. */
function clocks({ clocks: found, nodes: all, status }: ClusterFacts): readonly Finding[] {
  if (found === null) return [];
  const nameOf = (id: string): string => {
    const node = all.find((each) => each.id === id);
    return (node === undefined ? "" : nodeName(node)) || id;
  };
  const answered = found.managers.filter(({ failure }) => failure === "");
  const known = [
    { name: nameOf(status.managerId), aheadMs: 0, errorMs: 0 },
    ...answered.map(({ aheadMs, errorMs, managerId }) => ({ name: nameOf(managerId), aheadMs, errorMs })),
    { name: "this machine", ...found.own },
  ].toSorted((a, b) => a.aheadMs - b.aheadMs);
  const [first, last] = [known.at(0), known.at(-1)];
  if (first === undefined || last === undefined) return [];
  const apartMs = Math.max(0, last.aheadMs - last.errorMs - (first.aheadMs + first.errorMs));
  const silent = found.managers.filter(({ failure }) => failure !== "").map(({ managerId }) => nameOf(managerId));
  const unasked = silent.length === 0 ? "" : `; no answer from ${silent.join(", ")}`;
  const remedy =
    "run an NTP client on both: certificates, schedules and the times in histories follow the wall clock, and a manager whose clock differs by five minutes cannot join";
  if (apartMs < clocksApartMs)
    return [ok("clocks", `those of the managers and of this machine agree to ${seconds(clocksApartMs)}${unasked}`)];
  const text = `${last.name} is ${seconds(apartMs)} ahead of ${first.name}${unasked}`;
  return [(apartMs >= clocksTooFarApartMs ? problem : warning)("clocks", text, remedy)];
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

function nodes({ nodes: all }: ClusterFacts): Finding {
  const away = all.filter((node) => node.role !== NodeRole.MANAGER && !isReady(node));
  if (away.length === 0) return ok("nodes", `${all.length} ${all.length === 1 ? "node" : "nodes"}, all ready`);
  return warning(
    "nodes",
    `not ready: ${named(away)}`,
    "start them, or remove those that will not come back ('muster node rm --force'); 'muster why NODE' says what they wait for",
  );
}

/** A machine may have a manager and an agent, which share its name. */
function hostnames({ nodes: all }: ClusterFacts): readonly Finding[] {
  const ready = all.filter((node) => isReady(node) && nodeName(node) !== "");
  const kinds = Map.groupBy(ready, (node) => `${node.role} ${nodeName(node)}`);
  const shared = [...kinds.values()].filter(({ length }) => length > 1).map(([node]) => node as Node);
  if (shared.length === 0) return [];
  return [
    warning(
      "hostnames",
      `several nodes are called ${named(shared)}`,
      "commands need their ids; give each machine a name of its own, or start its agent with --hostname",
    ),
  ];
}

function certificates({ nodes: all, nowMs }: ClusterFacts): readonly Finding[] {
  const expired: Node[] = [];
  const late: Node[] = [];
  for (const node of all) {
    const { certificate } = node;
    const text = Buffer.from(certificate?.certificate ?? []).toString("latin1");
    const read = parsed(text);
    if (read === null) continue;
    const [from, to] = [read.validFromDate.getTime(), read.validToDate.getTime()];
    if (to <= nowMs) expired.push(node);
    else if (to - nowMs < (to - from) * lateShare) late.push(node);
  }
  const remedy =
    "check that the node reaches a manager and that its clock is right; 'muster why NODE' says what it waits for";
  if (expired.length === 0 && late.length === 0) return [ok("certificates", "no node's certificate expires soon")];
  return [
    ...(expired.length === 0
      ? []
      : [
          problem(
            "certificates",
            `expired: ${named(expired)}`,
            `${remedy}; a node that stays locked out joins again with a new data dir`,
          ),
        ]),
    ...(late.length === 0 ? [] : [warning("certificates", `overdue for renewal: ${named(late)}`, remedy)]),
  ];
}

function root({ cluster, nowMs }: ClusterFacts): Finding {
  const read = parsed(Buffer.from(cluster.rootCa?.caCert ?? []).toString("latin1"));
  if (read === null) return warning("root certificate", "cannot be read", "see 'muster ca'");
  const leftMs = read.validToDate.getTime() - nowMs;
  const remedy = "run 'muster swarm ca --rotate'";
  if (leftMs <= 0) return problem("root certificate", "has expired", remedy);
  const found = `expires in ${humanDuration(leftMs).toLowerCase()}`;
  return leftMs < rootLeftMsMin ? warning("root certificate", found, remedy) : ok("root certificate", found);
}

function parsed(pem: string): X509Certificate | null {
  try {
    return new X509Certificate(pem);
  } catch {
    return null;
  }
}

/** Engines have versions of their own: only managers and agents are compared. */
function versions({ nodes: all, version }: ClusterFacts): Finding {
  const ours = all.filter(
    (node) => isManagersNode(node) || node.description?.engine?.plugins.some(({ type }) => type === "Driver") === true,
  );
  const byVersion = Map.groupBy(ours, ({ description }) => description?.engine?.engineVersion ?? "");
  const others = [...byVersion].filter(([each]) => each !== version && each !== "");
  if (others.length === 0) return ok("versions", `managers and agents run ${version}, as this command`);
  return warning(
    "versions",
    others.map(([each, found]) => `${each} on ${named(found)}`).join("; "),
    `upgrade them: this command is version ${version}`,
  );
}
