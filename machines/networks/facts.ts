/** Messages that tell nodes about each of the cluster's objects (muster/v1/networks.proto). */
import { isLive } from "../node.ts";
import {
  AttachedNetwork,
  AttachedSubnet,
  NetworkNode,
  NetworkService,
  NetworkTask,
  TaskState,
  type Network,
  type NetworkAttachment,
  type NetworkSpec,
  type Node,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { tunnelAddressOf } from "../driver/labels.ts";
import { parseAddress } from "../../lib/ip-address.ts";
import { taskName } from "../list-filters.ts";
import { hasEndpoints } from "../policy/facts.ts";
import { networkDefaults } from "../allocation/network-defaults.ts";

function plainAddress(text: string): string {
  const address = text.split("/")[0] as string;
  return parseAddress(address) === null ? "" : address;
}

/** As in engines: the option's presence counts, whatever its value. */
export function isEncrypted(spec: NetworkSpec | null): boolean {
  return spec?.driverConfig?.options["encrypted"] !== undefined;
}

export function networkFact({ id, ipam, spec }: Network): AttachedNetwork {
  return AttachedNetwork.create({
    id,
    name: spec?.annotations?.name ?? "",
    internal: spec?.internal ?? false,
    encrypted: isEncrypted(spec),
    subnets: (ipam?.configs ?? []).map(({ gateway, subnet }) =>
      AttachedSubnet.create({ subnet, gateway: plainAddress(gateway) }),
    ),
  });
}

/** A node that counts as lost is not reachable: its tasks are about to run elsewhere. */
export function nodeFact(node: Node): NetworkNode {
  const own = tunnelAddressOf(node.description?.engine?.labels ?? {});
  return NetworkNode.create({
    id: node.id,
    name: node.description?.hostname ?? "",
    address: plainAddress(own || (node.status?.addr ?? "")),
    hasTunnel: own !== null && isLive(node),
    port: node.VXLANUDPPort || networkDefaults.dataPathPort,
  });
}

/** `idOf`: the id of the network that a spec refers to; null if there is none. */
export function serviceFacts(
  { endpoint, id, spec }: Service,
  idOf: (target: string) => string | null,
): readonly NetworkService[] {
  const aliases = new Map<string, readonly string[]>();
  const attached = spec?.task?.networks.length ? spec.task.networks : (spec?.networks ?? []);
  for (const config of attached) {
    const networkId = idOf(config.target);
    if (networkId !== null) aliases.set(networkId, config.aliases);
  }
  const virtual = new Map((endpoint?.virtualIps ?? []).map(({ addr, networkId }) => [networkId, plainAddress(addr)]));
  return [...aliases].map(([networkId, names]) =>
    NetworkService.create({
      key: `${id}/${networkId}`,
      networkId,
      serviceId: id,
      name: spec?.annotations?.name ?? "",
      aliases: [...names],
      virtualAddress: virtual.get(networkId) ?? "",
    }),
  );
}

/** The networks in which a task has addresses that may be in use. */
export function attachmentsOf(task: Task): readonly NetworkAttachment[] {
  if (!hasEndpoints(task)) return [];
  return task.networks.filter(({ addresses, network }) => network !== null && addresses.some(plainAddress));
}

/** Whether clients of the task's service may be sent to it. */
export function isReady({ desiredState, status }: Task): boolean {
  const isWanted = desiredState === TaskState.RUNNING || desiredState === TaskState.COMPLETE;
  return isWanted && status?.state === TaskState.RUNNING;
}

export function taskFact(task: Task, { addresses, aliases, network }: NetworkAttachment): NetworkTask {
  const networkId = network?.id ?? "";
  return NetworkTask.create({
    key: `${task.id}/${networkId}`,
    networkId,
    taskId: task.id,
    name: taskName(task),
    serviceId: task.serviceId,
    nodeId: task.nodeId,
    addresses: addresses.map(plainAddress).filter((each) => each !== ""),
    // A service's aliases are sent with the service: they stand for all its tasks.
    aliases: task.serviceId === "" ? [...aliases] : [],
    hostname: task.spec?.container?.hostname ?? "",
    ready: isReady(task),
  });
}
