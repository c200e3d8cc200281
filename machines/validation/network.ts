/** Whether a network may be, and may go. */
import {
  TaskState,
  type IPAMOptions,
  type Network,
  type NetworkSpec,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { containsAddress, containsRange, parseAddress, parseCidr } from "../ip-address.ts";
import { checkDnsName } from "../names.ts";
import { isPredefined, predefinedLabel } from "../new-networks.ts";
import { firstRefusal, invalid, refuse, type Refusal } from "../refusal.ts";

/** The drivers whose networks reach over several nodes; an ingress network must be one of these. */
const ingressDriver = "overlay";

function checkIpam(ipam: IPAMOptions | null): Refusal | null {
  for (const { subnet, range, gateway } of ipam?.configs ?? []) {
    if (subnet === "") return invalid("ipam configuration: cannot be empty");
    const net = parseCidr(subnet);
    if (net === null) return invalid(`ipam configuration: invalid subnet ${subnet}`);
    if (range !== "") {
      const inner = parseCidr(range);
      if (inner === null) return invalid(`ipam configuration: invalid range ${range}`);
      if (!containsRange(net, inner)) {
        return invalid(`ipam configuration: subnet ${subnet} does not contain range ${range}`);
      }
    }
    if (gateway !== "") {
      const address = parseAddress(gateway);
      if (address === null) return invalid(`ipam configuration: invalid gateway ${gateway}`);
      if (!containsAddress(net, address)) {
        return invalid(`ipam configuration: subnet ${subnet} does not contain gateway ${gateway}`);
      }
    }
  }
  return null;
}

export function checkNetworkSpec(spec: NetworkSpec | null): Refusal | null {
  if (spec === null) return invalid("invalid argument");
  const driver = spec.driverConfig?.name ?? "";
  return firstRefusal(
    () => checkDnsName(spec.annotations),
    () => (spec.ingress && spec.attachable ? invalid("ingress network cannot be attachable") : null),
    () =>
      spec.annotations?.labels[predefinedLabel] === undefined
        ? null
        : refuse(
            "permission-denied",
            `label ${predefinedLabel} is for internally created predefined networks, so user cannot set it`,
          ),
    () =>
      spec.ingress && driver !== "" && driver !== ingressDriver
        ? refuse("unimplemented", `driver '${driver}' is not supported for ingress networks`)
        : null,
    () => checkIpam(spec.ipam),
  );
}

export function isIngress(network: Network): boolean {
  return network.spec?.ingress === true;
}

function attachesTo(targets: readonly { readonly target: string }[], id: string): boolean {
  return targets.some(({ target }) => target === id);
}

/** `services` and `tasks`: all that there are. */
export function checkNetworkRemoval(
  network: Network,
  services: Iterable<Service>,
  tasks: Iterable<Task>,
): Refusal | null {
  const name = network.spec?.annotations?.name ?? "";
  if (isPredefined(network)) {
    return refuse(
      "failed-precondition",
      `network ${network.id} (${name}) is a swarm predefined network and cannot be removed`,
    );
  }
  for (const { id, spec } of services) {
    if (isIngress(network) && (spec?.endpoint?.ports ?? []).some(({ publishMode }) => publishMode === 0)) {
      return refuse("failed-precondition", `ingress network cannot be removed because service ${id} depends on it`);
    }
    if (attachesTo(spec?.task?.networks ?? [], network.id) || attachesTo(spec?.networks ?? [], network.id)) {
      return refuse("failed-precondition", `network ${network.id} is in use by service ${id}`);
    }
  }
  for (const task of tasks) {
    const isOver = task.desiredState > TaskState.RUNNING || (task.status?.state ?? 0) > TaskState.RUNNING;
    const isAttached =
      attachesTo(task.spec?.networks ?? [], network.id) ||
      task.networks.some((attachment) => attachment.network?.id === network.id);
    if (!isOver && isAttached) {
      return refuse("failed-precondition", `network ${network.id} is in use by task ${task.id}`);
    }
  }
  return null;
}
