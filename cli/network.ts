/** `muster network`: create, ls, inspect, rm, prune. Cluster networks only; an engine manages its own. */
import { checkNetworkUnused, checkNetworkRemoval, isIngress } from "../machines/validation/network.ts";
import { networkObject, timeText } from "../lib/docker-objects/index.ts";
import {
  ControlService,
  CreateNetworkRequest,
  GetNetworkRequest,
  Network,
  NodeStatus_State,
  type Task,
  RemoveNetworkRequest,
} from "../proto/gen/messages.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import { command, inspectOptions, listingOptions, type Command } from "./command.ts";
import { isConfirmed } from "./confirm.ts";
import {
  findNetwork,
  listNetworks,
  listNodes,
  listServices,
  listTasks,
  networkName,
  withManager,
  type ManagerClient,
} from "./manager-client.ts";
import {
  asksForUse,
  matchingNetworks,
  networkFilterKeys,
  predefinedLabel,
  prunableNetworks,
} from "./network/filters.ts";
import { networkServices } from "./network/services.ts";
import { networkFlags, networkSpec } from "./network/spec.ts";
import { eachOperand, inspectEach } from "./operands.ts";
import { labelFields, printListing } from "./table.ts";
import { NotThereError } from "../lib/user-error.ts";

const methods = ControlService.methods;

/** Docker's length of ids in listings of networks. */
const shortIdLength = 12;

/** The allocated driver; before allocation, the requested one. */
function driverOf(network: Network): string {
  return network.driverState?.name || network.spec?.driverConfig?.name || "";
}

const create = command({
  operands: "NETWORK",
  min: 1,
  max: 1,
  summary: "Create a network that spans the cluster.",
  options: networkFlags,
  run: ({ values, operands, shell }) => {
    const spec = networkSpec(operands[0] as string, values);
    return withManager(shell, async (client) => {
      const { network } = await client.call(methods.CreateNetwork, CreateNetworkRequest.create({ spec }));
      shell.print(network?.id ?? "");
    });
  },
});

/**
 * Returns a predicate for unused networks, with the manager's own check before a removal; the ingress network never counts as
 * unused.
 */
async function unusedIn(client: ManagerClient): Promise<(network: Network) => boolean> {
  const [services, tasks, nodes] = await Promise.all([listServices(client), listTasks(client), listNodes(client)]);
  const down = new Set(nodes.filter(({ status }) => status?.state === NodeStatus_State.DOWN).map(({ id }) => id));
  const tasksOf = (id: string): readonly Task[] => tasks.filter(({ serviceId }) => serviceId === id);
  return (network) =>
    !isIngress(network) &&
    checkNetworkRemoval(network, services, tasksOf) === null &&
    checkNetworkUnused(network, tasks, (id) => down.has(id)) === null;
}

const ls = command({
  summary: "List networks.",
  options: {
    ...listingOptions,
    filter: {
      type: "string",
      multiple: true,
      short: "f",
      value: "KEY=VALUE",
      help: networkFilterKeys.map((key) => `${key}=`).join(", "),
    },
    "no-trunc": { type: "boolean", help: "Do not truncate IDs" },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const idOf = ({ id }: Network): string => (values["no-trunc"] === true ? id : id.slice(0, shortIdLength));
      const texts = values.filter ?? [];
      const isWanted = matchingNetworks(texts, asksForUse(texts) ? await unusedIn(client) : () => false);
      const networks = (await listNetworks(client))
        .filter(isWanted)
        .filter(({ spec }) => spec?.annotations?.labels[predefinedLabel] === undefined)
        .toSorted((a, b) => networkName(a).localeCompare(networkName(b)));
      printListing(
        shell,
        {
          headings: ["NETWORK ID", "NAME", "DRIVER", "SCOPE"],
          keys: ["ID", "Name", "Driver", "Scope"],
          rows: networks.map((network) => ({
            id: network.id,
            cells: [idOf(network), networkName(network), driverOf(network), "swarm"],
            object: () => Network.toJson(network),
            fields: () => ({
              ...labelFields(network.spec?.annotations?.labels),
              CreatedAt: timeText(network.meta?.createdAt ?? null),
              IPv4: "true",
              IPv6: String(network.spec?.ipv6Enabled ?? false),
              Internal: String(network.spec?.internal ?? false),
            }),
          })),
        },
        values,
      );
    }),
});

const inspect = command({
  operands: "NETWORK [NETWORK...]",
  min: 1,
  summary: "Display detailed information on one or more networks.",
  options: {
    ...inspectOptions,
    verbose: { type: "boolean", short: "v", help: "Include services and running tasks with their addresses" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const find = async (operand: string): Promise<Network | null> => {
        const { id } = await findNetwork(client, operand);
        return (await client.call(methods.GetNetwork, GetNetworkRequest.create({ networkId: id }))).network;
      };
      const [services, tasks, nodes] =
        values.verbose === true
          ? await Promise.all([listServices(client), listTasks(client), listNodes(client)])
          : [[], [], []];
      await inspectEach({ shell, operands, format: values.format }, find, (network) => ({
        docker: {
          ...networkObject(network),
          ...(values.verbose === true ? { Services: networkServices(network, services, tasks, nodes) } : {}),
        },
        wire: () => Network.toJson(network),
      }));
    }),
});

/** Asked even with `--force`, which only ignores absent networks: Docker does the same. */
const ingressWarning =
  "This is the ingress network. Without it, ports published in ingress mode do not work on any node of the cluster, until " +
  "another ingress network is created.";

const rm = command({
  operands: "NETWORK [NETWORK...]",
  min: 1,
  summary: "Remove one or more unused networks; prompts before removing the ingress network.",
  options: { force: { type: "boolean", short: "f", help: "Do not fail if a network does not exist" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, (client) =>
      eachOperand(operands, async (operand) => {
        try {
          const network = await findNetwork(client, operand);
          if (network.spec?.ingress === true && !(await isConfirmed(shell, ingressWarning))) return;
          await client.call(methods.RemoveNetwork, RemoveNetworkRequest.create({ networkId: network.id }));
        } catch (error) {
          const isGone = error instanceof RpcError && error.code === Status.NOT_FOUND;
          if (values.force !== true || !(isGone || error instanceof NotThereError)) throw error;
          return;
        }
        shell.print(operand);
      }),
    ),
});

/** Whether the cluster refused the removal because the network is in use. */
function isInUse(error: unknown): boolean {
  return error instanceof RpcError && (error.code === Status.FAILED_PRECONDITION || error.code === Status.NOT_FOUND);
}

const prune = command({
  summary: "Remove all networks that no service or task uses, except the ingress network.",
  options: {
    filter: { type: "string", multiple: true, value: "KEY=VALUE", help: "Filter: label=, label!=, until=" },
    force: { type: "boolean", short: "f", help: "Do not prompt for confirmation" },
  },
  run: async ({ values, shell }) => {
    const isPrunable = prunableNetworks(values.filter ?? [], shell.now());
    const warning = "This will remove all networks not used by at least one service or task.";
    if (values.force !== true && !(await isConfirmed(shell, warning))) return;
    await withManager(shell, async (client) => {
      const removed: string[] = [];
      const found = (await listNetworks(client)).filter(isPrunable);
      for (const network of found.toSorted((a, b) => networkName(a).localeCompare(networkName(b)))) {
        try {
          await client.call(methods.RemoveNetwork, RemoveNetworkRequest.create({ networkId: network.id }));
          removed.push(networkName(network));
        } catch (error) {
          if (!isInUse(error)) throw error;
        }
      }
      if (removed.length > 0) shell.print(["Deleted Networks:", ...removed].join("\n"));
    });
  },
});

export const commands: Readonly<Record<string, Command>> = { create, ls, inspect, rm, prune };
