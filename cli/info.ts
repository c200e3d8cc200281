/** `muster info`: a summary of the cluster and the manager that answers; `--format` uses the names of `docker info`. */
import { isRunning, isWanted } from "../machines/task.ts";
import { timeText } from "../lib/docker-objects/index.ts";
import {
  NodeRole,
  NodeStatus_State,
  OperatorService,
  StatusRequest,
  StatusResponse,
  Trouble_Kind,
  type Node,
  type Task,
} from "../proto/gen/messages.ts";
import { command, inspectOptions, type Command } from "./command.ts";
import { filled, readFormat } from "./format.ts";
import { cluster, listNetworks, listNodes, listServices, listTasks, nodeName, withManager } from "./manager-client.ts";
import { jsonText } from "../lib/template/template.ts";
import { humanDuration } from "../lib/human-duration.ts";
import { version } from "../lib/version.ts";

interface Found {
  readonly status: StatusResponse;
  readonly createdAt: string;
  readonly nodes: readonly Node[];
  readonly tasks: readonly Task[];
  readonly services: number;
  readonly networks: number;
}

function troubleName(kind: Trouble_Kind): string {
  return Object.entries(Trouble_Kind).find(([, number]) => number === kind)?.[0] ?? String(kind);
}

function isManager(node: Node): boolean {
  return node.managerStatus !== null || node.role === NodeRole.MANAGER;
}

/** The swarm part of `docker info`, plus Muster's own fields. */
function dockerObject({ createdAt, networks, nodes, services, status, tasks }: Found): Record<string, unknown> {
  const inState = (state: NodeStatus_State): number => nodes.filter((node) => node.status?.state === state).length;
  const managers = nodes.filter(isManager);
  return {
    Swarm: {
      NodeID: status.managerId,
      NodeAddr: status.addr.replace(/:\d+$/, ""),
      LocalNodeState: "active",
      ControlAvailable: status.leaderId !== "",
      Error: "",
      RemoteManagers: managers.map(({ id, managerStatus }) => ({ NodeID: id, Addr: managerStatus?.addr ?? "" })),
      Nodes: nodes.length,
      Managers: managers.length,
      Cluster: { ID: status.clusterId, CreatedAt: createdAt },
    },
    ServerVersion: version,
    Warnings: status.warnings,
    Leader: status.leaderId,
    Epoch: status.epoch,
    Applied: status.applied,
    Sessions: status.sessions,
    Healthy: status.healthy,
    Troubles: status.troubles.map(({ blocking, kind, sentence, since }) => ({
      Kind: troubleName(kind),
      Sentence: sentence,
      Since: timeText(since),
      Blocking: blocking,
    })),
    LogLevel: status.level,
    LogCopies: { Wanted: status.logCopies?.wanted ?? 0, Current: status.logCopies?.current ?? 0 },
    ProgressAgeMs: status.progressAgeMs,
    NodesReady: inState(NodeStatus_State.READY),
    NodesDown: inState(NodeStatus_State.DOWN),
    Services: services,
    Networks: networks,
    Tasks: tasks.filter((task) => isWanted(task)).length,
    TasksRunning: tasks.filter((task) => isRunning(task)).length,
  };
}

function copiesText({ logCopies }: StatusResponse): string {
  if (logCopies === null) return "";
  const { current, wanted } = logCopies;
  return wanted === 1 ? ", one copy" : `, ${current} of ${wanted} copies current`;
}

function text(found: Found): string {
  const { createdAt, networks, nodes, services, status, tasks } = found;
  const leader = nodes.find(({ id }) => id === status.leaderId);
  const wanted = tasks.filter((task) => isWanted(task));
  const running = wanted.filter((task) => isRunning(task)).length;
  const states = Map.groupBy(nodes, (node) => node.status?.state ?? NodeStatus_State.UNKNOWN);
  const counted = Object.entries(NodeStatus_State)
    .map(([name, state]) => ({ name: name.toLowerCase(), count: states.get(state)?.length ?? 0 }))
    .filter(({ count }) => count > 0);
  const age = status.progressAgeMs < 0 ? "never" : `${humanDuration(status.progressAgeMs).toLowerCase()} ago`;
  const lines: readonly (readonly [string, string])[] = [
    ["Version", version],
    ["Cluster", `${status.clusterId} (since ${createdAt})`],
    ["Manager", `${status.managerId} at ${status.addr}`],
    [
      "Leader",
      status.leaderId === "" ? "none" : `${leader === undefined ? "" : nodeName(leader)} ${status.leaderId}`.trim(),
    ],
    ["Healthy", `${status.healthy ? "yes" : "no"} (last progress ${age})`],
    ...status.troubles.map(({ sentence, since }): readonly [string, string] => [
      "Trouble",
      `${sentence} (since ${timeText(since)})`,
    ]),
    ["Log", `version ${status.applied}, epoch ${status.epoch}, format level ${status.level}${copiesText(status)}`],
    ["Managers", String(nodes.filter(isManager).length)],
    [
      "Nodes",
      `${nodes.length}${counted.length === 0 ? "" : ` (${counted.map(({ count, name }) => `${count} ${name}`).join(", ")})`}`,
    ],
    ["Sessions here", String(status.sessions)],
    ["Services", String(services)],
    ["Tasks", `${running} of ${wanted.length} running`],
    ["Networks", String(networks)],
  ];
  const width = Math.max(...lines.map(([name]) => name.length)) + 2;
  return lines.map(([name, value]) => `${`${name}:`.padEnd(width)}${value}`).join("\n");
}

export const info: Command = command({
  summary:
    "Display a summary of the cluster (leader, nodes, services, tasks) and the state of the manager that answers.",
  options: inspectOptions,
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const format = readFormat(values.format);
      const [status, { meta }, nodes, tasks, services, networks] = await Promise.all([
        client.call(OperatorService.methods.Status, StatusRequest.create({})),
        cluster(client),
        listNodes(client),
        listTasks(client),
        listServices(client),
        listNetworks(client),
      ]);
      const found: Found = {
        status,
        createdAt: timeText(meta?.createdAt ?? null),
        nodes,
        tasks,
        services: services.length,
        networks: networks.length,
      };
      if (format.kind === "wire") shell.print(JSON.stringify(StatusResponse.toJson(status)));
      else if (format.kind === "json") shell.print(jsonText(dockerObject(found)));
      else if (format.kind === "template") shell.print(filled(format.template, dockerObject(found)));
      else {
        shell.print(text(found));
        for (const warning of status.warnings) shell.remark(`WARNING: ${warning}`);
      }
    }),
});
