/** `muster node`: ls, inspect, update, rm, ps. */
import { isWanted } from "../machines/task.ts";
import {
  Annotations,
  ControlService,
  IssuanceStatus_State,
  type LogCopies,
  ListTasksRequest_Filters,
  Node,
  NodeRole,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus_State,
  OperatorService,
  WhyRequest,
  RaftMemberStatus_Reachability,
  RemoveNodeRequest,
  RotateCertificateRequest,
  StatusRequest,
  UpdateNodeRequest,
} from "../proto/gen/messages.ts";
import { command, inspectOptions, listingOptions, type Command } from "./command.ts";
import { findNode, listNodes, nodeName, retryingConflicts, withManager, type ManagerClient } from "./manager-client.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import { UsageError, UserError } from "../lib/user-error.ts";
import { matchingNodes, nodeFilterKeys } from "./node/filters.ts";
import { eachOperand, inspectEach } from "./operands.ts";
import { dataplanePart, readReports } from "./policy/status.ts";
import type { Shell } from "./shell.ts";
import { printListing } from "./table.ts";
import { filterFlag, printTasks, taskListingOptions } from "./task/listing.ts";
import { parseChoice, parseLabels } from "./values.ts";

const methods = ControlService.methods;

const states: { readonly [State in NodeStatus_State]: string } = {
  [NodeStatus_State.UNKNOWN]: "Unknown",
  [NodeStatus_State.DOWN]: "Down",
  [NodeStatus_State.READY]: "Ready",
  [NodeStatus_State.DISCONNECTED]: "Disconnected",
};
const availabilities: { readonly [Availability in NodeSpec_Availability]: string } = {
  [NodeSpec_Availability.ACTIVE]: "Active",
  [NodeSpec_Availability.PAUSE]: "Pause",
  [NodeSpec_Availability.DRAIN]: "Drain",
};

function managerColumn({ managerStatus }: Node): string {
  if (managerStatus === null) return "";
  if (managerStatus.leader) return "Leader";
  return managerStatus.reachability === RaftMemberStatus_Reachability.REACHABLE ? "Reachable" : "Unreachable";
}

/** The status of the node's certificate. */
function tlsStatus({ certificate }: Node): string {
  if (certificate?.status == null) return "Unknown";
  return certificate.status.state === IssuanceStatus_State.ISSUED ? "Ready" : "Needs Rotation";
}

const ls = command({
  summary: "List nodes in the cluster.",
  options: {
    ...listingOptions,
    filter: {
      type: "string",
      multiple: true,
      short: "f",
      value: "KEY=VALUE",
      help: `${nodeFilterKeys.map((key) => `${key}=`).join(", ")}`,
    },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const isWanted = matchingNodes(values.filter ?? []);
      const [nodes, { logCopies, managerId }] = await Promise.all([
        listNodes(client),
        client.call(OperatorService.methods.Status, StatusRequest.create({})),
      ]);
      printListing(
        shell,
        {
          headings: ["ID", "HOSTNAME", "STATUS", "AVAILABILITY", "MANAGER STATUS", "ENGINE VERSION"],
          rows: nodes.filter(isWanted).map((node) => ({
            id: node.id,
            cells: [
              node.id === managerId ? `${node.id} *` : node.id,
              nodeName(node),
              states[node.status?.state ?? NodeStatus_State.UNKNOWN],
              availabilities[node.spec?.availability ?? NodeSpec_Availability.ACTIVE],
              managerColumn(node),
              node.description?.engine?.engineVersion ?? "",
            ],
            object: () => Node.toJson(node),
            fields: () => ({ ID: node.id, Self: node.id === managerId, TLSStatus: tlsStatus(node) }),
          })),
        },
        values,
      );
      const remark = copiesRemark(logCopies, nodes.filter(({ managerStatus }) => managerStatus !== null).length);
      if (remark !== "" && values.quiet !== true && values.format === undefined) shell.remark(remark);
    }),
});

/** Empty while every copy is current, and for a single manager, which cannot have more than one. */
function copiesRemark(copies: LogCopies | null, managers: number): string {
  if (copies === null || managers < 2) return "";
  if (copies.wanted === 1) return "The log has one copy: see 'muster info'";
  return copies.current < copies.wanted
    ? `The log has ${copies.current} of ${copies.wanted} current copies: see 'muster info'`
    : "";
}

/** Empty for a stock manager, which does not have this call, and with --at. */
async function sessionState(client: ManagerClient, id: string): Promise<string> {
  try {
    return (await client.call(OperatorService.methods.Why, WhyRequest.create({ subject: id }))).session;
  } catch (error) {
    const isUnknownCall = error instanceof RpcError && error.code === Status.UNIMPLEMENTED;
    if (isUnknownCall || error instanceof UserError) return "";
    throw error;
  }
}

const inspect = command({
  operands: "self|NODE [NODE...]",
  min: 1,
  summary: "Display detailed information on one or more nodes.",
  options: { ...inspectOptions, pretty: { type: "boolean", help: "Print in a human-friendly format" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      if (values.pretty === true) {
        if (values.format !== undefined) throw new UsageError("--format is incompatible with --pretty");
        const nodes: Node[] = [];
        for (const operand of operands) nodes.push(await findNode(client, operand));
        const { prettyNode } = await import("./node/pretty.ts");
        const reports = await readReports(client);
        const sessions = await Promise.all(nodes.map(({ id }) => sessionState(client, id)));
        const pretty = nodes.map((node, at) => prettyNode(node, reports.get(node.id), sessions[at]));
        shell.print(pretty.join("\n\n"));
        return;
      }
      const find = (operand: string): Promise<Node> => findNode(client, operand);
      const reports = await readReports(client);
      const { nodeObject } = await import("../lib/docker-objects/index.ts");
      await inspectEach({ shell, operands, format: values.format }, find, (node) => ({
        docker: { ...nodeObject(node), ...dataplanePart(reports.get(node.id)) },
        wire: () => Node.toJson(node),
      }));
    }),
});

const update = command({
  operands: "NODE",
  min: 1,
  max: 1,
  summary: "Update a node's availability, role or labels, or have it renew its certificate.",
  options: {
    availability: {
      type: "string",
      value: "active|pause|drain",
      help: "Whether the node accepts new tasks; drain also moves its running tasks away",
      completes: ["active", "pause", "drain"],
    },
    role: { type: "string", value: "worker|manager", help: "Role of the node", completes: ["worker", "manager"] },
    "label-add": { type: "string", multiple: true, value: "KEY=VALUE", help: "Add or update a label" },
    "label-rm": { type: "string", multiple: true, value: "KEY", help: "Remove a label" },
    "rotate-certificate": { type: "boolean", help: "Have the node renew its certificate now" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const change = (spec: NodeSpec): NodeSpec => {
        const labels = { ...spec.annotations?.labels, ...parseLabels(values["label-add"] ?? [], "label-add") };
        for (const label of values["label-rm"] ?? []) delete labels[label];
        return NodeSpec.patch(spec, {
          annotations: Annotations.patch(spec.annotations ?? Annotations.create({}), { labels }),
          ...(values.availability === undefined
            ? {}
            : {
                availability: parseChoice(values.availability, "availability", {
                  active: NodeSpec_Availability.ACTIVE,
                  pause: NodeSpec_Availability.PAUSE,
                  drain: NodeSpec_Availability.DRAIN,
                }),
              }),
          ...(values.role === undefined
            ? {}
            : {
                desiredRole: parseChoice(values.role, "role", { worker: NodeRole.WORKER, manager: NodeRole.MANAGER }),
              }),
        });
      };
      const { "rotate-certificate": isRotated, ...changes } = values;
      if (isRotated === true) {
        const { id } = await findNode(client, operands[0] as string);
        await client.call(OperatorService.methods.RotateCertificate, RotateCertificateRequest.create({ nodeId: id }));
        if (Object.keys(changes).length === 0) return shell.print(id);
      }
      if (Object.keys(values).length === 0)
        throw new UsageError("no settings to change: set at least one flag (see 'muster node update --help')");
      // A heartbeat may rewrite the node between read and write.
      await retryingConflicts(async () => {
        const node = await findNode(client, operands[0] as string);
        await client.call(
          methods.UpdateNode,
          UpdateNodeRequest.create({
            nodeId: node.id,
            nodeVersion: node.meta?.version ?? null,
            spec: change(node.spec ?? NodeSpec.create({})),
          }),
        );
        shell.print(node.id);
      });
    }),
});

/** Prints Docker's message for each node, whether or not its role changed. */
async function changeRoles(shell: Shell, operands: readonly string[], desiredRole: NodeRole): Promise<void> {
  const isPromotion = desiredRole === NodeRole.MANAGER;
  await withManager(shell, async (client) => {
    for (const operand of operands) {
      await retryingConflicts(async () => {
        const { id, meta, spec } = await findNode(client, operand);
        if (spec?.desiredRole === desiredRole) {
          shell.remark(`Node ${operand} is already a ${isPromotion ? "manager" : "worker"}.`);
          return;
        }
        await client.call(
          methods.UpdateNode,
          UpdateNodeRequest.create({
            nodeId: id,
            nodeVersion: meta?.version ?? null,
            spec: NodeSpec.patch(spec ?? NodeSpec.create({}), { desiredRole }),
          }),
        );
        shell.print(
          isPromotion
            ? `Node ${operand} promoted to a manager in the swarm: start its process again.`
            : `Manager ${operand} demoted in the swarm.`,
        );
      });
    }
  });
}

const promote = command({
  operands: "NODE [NODE...]",
  min: 1,
  summary: "Promote one or more demoted nodes to manager.",
  options: {},
  run: ({ operands, shell }) => changeRoles(shell, operands, NodeRole.MANAGER),
});

const demote = command({
  operands: "NODE [NODE...]",
  min: 1,
  summary: "Demote one or more managers to worker; their processes hand over and exit.",
  options: {},
  run: ({ operands, shell }) => changeRoles(shell, operands, NodeRole.WORKER),
});

const rm = command({
  operands: "NODE [NODE...]",
  min: 1,
  summary: "Remove one or more nodes from the cluster; their certificates are refused from then on.",
  options: { force: { type: "boolean", short: "f", help: "Remove the node even if it is not down" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        const { id } = await findNode(client, operand);
        await client.call(methods.RemoveNode, RemoveNodeRequest.create({ nodeId: id, force: values.force ?? false }));
        shell.print(operand);
      }),
    ),
});

const ps = command({
  operands: "[self|NODE...]",
  summary: "List tasks running on one or more nodes.",
  options: {
    ...taskListingOptions,
    all: { type: "boolean", short: "a", help: "Include tasks of the past" },
    filter: { ...filterFlag, help: "Filter by id=, name=, label= or desired-state=" },
  },
  run: ({ values, operands, shell }) => {
    const isEvery = values.all === true || (values.filter ?? []).some((text) => text.startsWith("desired-state="));
    return withManager(shell, (client) =>
      printTasks(
        client,
        shell,
        values,
        async () => {
          const nodeIds: string[] = [];
          for (const operand of operands.length === 0 ? ["self"] : operands)
            nodeIds.push((await findNode(client, operand)).id);
          return ListTasksRequest_Filters.create({ nodeIds });
        },
        (task) => isEvery || isWanted(task),
      ),
    );
  },
});

export const commands: Readonly<Record<string, Command>> = { ls, inspect, update, promote, demote, rm, ps };
