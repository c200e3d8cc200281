/** Services and tasks on a network with their addresses, like Docker's `network inspect --verbose`. Pure. */
import { isRunning } from "../../machines/task.ts";
import { taskName } from "../../machines/list-filters.ts";
import { PortConfig_PublishMode, type Network, type Node, type Service, type Task } from "../../proto/gen/messages.ts";
import { serviceName } from "../manager-client.ts";

interface OnNetwork {
  /** Empty: the name resolves to the tasks' addresses. */
  readonly VIP: string;
  readonly Ports: readonly string[];
  readonly Tasks: readonly {
    readonly Name: string;
    readonly EndpointIP: string;
    readonly Info: { readonly "Host IP": string };
  }[];
}

/** The address in `10.0.1.2/24`. */
function bare(address: string): string {
  return address.split("/")[0] as string;
}

/** The task's address on the network; null when it is not attached. */
function addressOn(network: Network, task: Task): string | null {
  const found = task.networks.find((attachment) => attachment.network?.id === network.id);
  return found === undefined ? null : bare(found.addresses[0] ?? "");
}

function portsOn(network: Network, { endpoint }: Service): readonly string[] {
  // Docker lists ports only for the ingress network.
  if (network.spec?.ingress !== true) return [];
  return (endpoint?.ports ?? [])
    .filter(({ publishMode }) => publishMode === PortConfig_PublishMode.INGRESS)
    .map(({ publishedPort, targetPort }) => `Target: ${targetPort}, Publish: ${publishedPort}`);
}

/** By service name, sorted: services with a virtual IP or a running task on the network. */
export function networkServices(
  network: Network,
  services: readonly Service[],
  tasks: readonly Task[],
  nodes: readonly Node[],
): ReadonlyMap<string, OnNetwork> {
  const hosts = new Map(nodes.map(({ id, status }) => [id, status?.addr ?? ""]));
  const byService = Map.groupBy(
    tasks.filter((task) => isRunning(task) && addressOn(network, task) !== null),
    ({ serviceId }) => serviceId,
  );
  const found = new Map<string, OnNetwork>();
  for (const service of services.toSorted((a, b) => serviceName(a).localeCompare(serviceName(b)))) {
    const vip = service.endpoint?.virtualIps.find(({ networkId }) => networkId === network.id);
    const own = byService.get(service.id) ?? [];
    if (vip === undefined && own.length === 0) continue;
    found.set(serviceName(service), {
      VIP: bare(vip?.addr ?? ""),
      Ports: portsOn(network, service),
      Tasks: own
        .toSorted((a, b) => a.slot - b.slot || taskName(a).localeCompare(taskName(b)))
        .map((task) => ({
          Name: taskName(task),
          EndpointIP: addressOn(network, task) ?? "",
          Info: { "Host IP": hosts.get(task.nodeId) ?? "" },
        })),
    });
  }
  return found;
}
