/** `muster service ls`, `ps` and `inspect`, with Docker's columns. */
import { modeOf, type ServiceMode } from "../../machines/orchestration/service-mode.ts";
import {
  ControlService,
  GetServiceRequest,
  ListServiceStatusesRequest,
  ListTasksRequest_Filters,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  Service,
  type ListServiceStatusesResponse_ServiceStatus,
  type PortConfig,
} from "../../proto/gen/messages.ts";
import { command, inspectOptions, listingOptions } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import {
  listNetworks,
  listServices,
  lookUpService,
  networkName,
  serviceName,
  withManager,
  type ManagerClient,
} from "../manager-client.ts";
import { inspectEach } from "../operands.ts";
import { labelFields, printListing, type Listing } from "../table.ts";
import { filterFlag, hasLabel, pairOf, printTasks, taskListingOptions } from "../task/listing.ts";
import { imageOf } from "../task/table.ts";

const methods = ControlService.methods;

/** Docker's length of ids in listings of services. */
const shortIdLength = 12;

const modeNames: { readonly [Mode in ServiceMode]: string } = {
  replicated: "replicated",
  global: "global",
  "replicated-job": "replicated job",
  "global-job": "global job",
};

function modeName(service: Service): string {
  const mode = modeOf(service.spec);
  return mode === null ? "" : modeNames[mode];
}

function replicasColumn(service: Service, status: ListServiceStatusesResponse_ServiceStatus | undefined): string {
  const { runningTasks = 0, desiredTasks = 0, completedTasks = 0 } = status ?? {};
  const counts = `${runningTasks}/${desiredTasks}`;
  const job = service.spec?.replicatedJob;
  if (job != null) return `${counts} (${completedTasks}/${job.totalCompletions} completed)`;
  // Completed tasks of a global job are no longer desired.
  if (service.spec?.globalJob != null) {
    return `${counts} (${completedTasks}/${desiredTasks + completedTasks} completed)`;
  }
  const max = service.spec?.replicated == null ? 0 : (service.spec.task?.placement?.maxReplicas ?? 0);
  return max === 0 ? counts : `${counts} (max ${max} per node)`;
}

const protocolNames: { readonly [Protocol in PortConfig_Protocol]: string } = {
  [PortConfig_Protocol.TCP]: "tcp",
  [PortConfig_Protocol.UDP]: "udp",
  [PortConfig_Protocol.SCTP]: "sctp",
};

interface PortRange {
  readonly protocol: PortConfig_Protocol;
  readonly published: number;
  readonly target: number;
  publishedTo: number;
  targetTo: number;
}

function rangeText({ protocol, published, publishedTo, target, targetTo }: PortRange): string {
  const span = (from: number, to: number): string => (to > from ? `${from}-${to}` : String(from));
  return `*:${span(published, publishedTo)}->${span(target, targetTo)}/${protocolNames[protocol]}`;
}

/**
 * Ports published on every node. Consecutive ports are one range, if their targets are consecutive too or all equal:
 * `*:80-82->80-82/tcp`, `*:80-81->80/tcp`.
 */
export function ingressPorts(ports: readonly PortConfig[]): string {
  const sorted = ports
    .filter(({ publishMode }) => publishMode === PortConfig_PublishMode.INGRESS)
    .toSorted((a, b) =>
      a.protocol === b.protocol
        ? a.publishedPort - b.publishedPort
        : protocolNames[a.protocol] < protocolNames[b.protocol]
          ? -1
          : 1,
    );
  const ranges: PortRange[] = [];
  for (const { protocol, publishedPort, targetPort } of sorted) {
    const last = ranges.at(-1);
    const isNext = last !== undefined && last.protocol === protocol && publishedPort === last.publishedTo + 1;
    const isOneTarget = isNext && last.target === last.targetTo && targetPort === last.target;
    const isSpan =
      isNext && targetPort === last.targetTo + 1 && last.targetTo - last.target === last.publishedTo - last.published;
    if (last !== undefined && (isOneTarget || isSpan)) {
      last.publishedTo = publishedPort;
      last.targetTo = targetPort;
    } else {
      const [published, target] = [publishedPort, targetPort];
      ranges.push({ protocol, published, target, publishedTo: published, targetTo: target });
    }
  }
  return ranges.map(rangeText).join(", ");
}

/** Sorts numerically: `web2` before `web10`. */
const byName = new Intl.Collator("en", { numeric: true });

/** Values of one key are ORed, keys are ANDed, as in Docker. */
export function matching(texts: readonly string[]): (service: Service) => boolean {
  const keys = Map.groupBy(
    texts.map((text) => pairOf(text, "filter")),
    ([key]) => key,
  );
  for (const key of keys.keys()) {
    if (!["id", "name", "label", "mode"].includes(key)) {
      throw new UsageError(`invalid filter "${key}=": expected id=, name=, label= or mode=`);
    }
  }
  const meets = (service: Service, key: string, value: string): boolean => {
    if (key === "id") return service.id.startsWith(value);
    if (key === "name") return serviceName(service).startsWith(value);
    if (key === "mode") return modeOf(service.spec) === value;
    return hasLabel(service.spec?.annotations?.labels ?? {}, value);
  };
  return (service) => [...keys].every(([key, pairs]) => pairs.some(([, value]) => meets(service, key, value)));
}

/** Sorted by name, with counts of running tasks. */
export async function serviceListing(client: ManagerClient, unordered: readonly Service[]): Promise<Listing> {
  const services = unordered.toSorted((a, b) => byName.compare(serviceName(a), serviceName(b)));
  const request = ListServiceStatusesRequest.create({ services: services.map(({ id }) => id) });
  const { statuses } = await client.call(methods.ListServiceStatuses, request);
  const byId = new Map(statuses.map((status) => [status.serviceId, status]));
  return {
    headings: ["ID", "NAME", "MODE", "REPLICAS", "IMAGE", "PORTS"],
    rows: services.map((service) => ({
      id: service.id,
      cells: [
        service.id.slice(0, shortIdLength),
        serviceName(service),
        modeName(service),
        replicasColumn(service, byId.get(service.id)),
        imageOf(service.spec?.task ?? null),
        // The allocator chooses ports that the spec leaves open.
        ingressPorts(service.endpoint?.ports ?? service.spec?.endpoint?.ports ?? []),
      ],
      object: () => Service.toJson(service),
      fields: () => labelFields(service.spec?.annotations?.labels),
    })),
  };
}

export const ls = command({
  summary: "List services.",
  options: { ...listingOptions, filter: { ...filterFlag, help: "Filter by id=, name=, label= or mode=" } },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const services = (await listServices(client)).filter(matching(values.filter ?? []));
      printListing(shell, await serviceListing(client, services), values);
    }),
});

export const ps = command({
  operands: "SERVICE [SERVICE...]",
  min: 1,
  summary: "List the tasks of one or more services, including past ones.",
  options: taskListingOptions,
  run: ({ values, operands, shell }) =>
    withManager(shell, (client) =>
      printTasks(client, shell, values, async () => {
        const serviceIds: string[] = [];
        for (const operand of operands) serviceIds.push((await lookUpService(client, operand)).id);
        return ListTasksRequest_Filters.create({ serviceIds });
      }),
    ),
});

export const inspect = command({
  operands: "SERVICE [SERVICE...]",
  min: 1,
  summary: "Display detailed information on one or more services, with defaults filled in.",
  options: { ...inspectOptions, pretty: { type: "boolean", help: "Print in a human-friendly format" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const isPretty = values.pretty === true || values.format === "pretty";
      if (values.pretty === true && values.format !== undefined) {
        throw new UsageError("--format is incompatible with --pretty");
      }
      const find = async (operand: string): Promise<Service | null> => {
        const { id } = await lookUpService(client, operand);
        const request = GetServiceRequest.create({ serviceId: id, insertDefaults: true });
        return (await client.call(methods.GetService, request)).service;
      };
      if (isPretty) {
        const services: Service[] = [];
        for (const operand of operands) services.push(...[await find(operand)].filter((service) => service !== null));
        const names = new Map((await listNetworks(client)).map((network) => [network.id, networkName(network)]));
        const { prettyService } = await import("./pretty.ts");
        shell.print(services.map((service) => prettyService(service, names, shell.now())).join("\n\n"));
        return;
      }
      const { serviceObject } = await import("../../lib/docker-objects/index.ts");
      await inspectEach({ shell, operands, format: values.format }, find, (service) => ({
        docker: serviceObject(service),
        wire: () => Service.toJson(service),
      }));
    }),
});
