/** `/services`. */
import {
  ContainerSpec,
  ContainerSpec_PullOptions,
  ControlService,
  CreateServiceRequest,
  GetServiceRequest,
  ListServiceStatusesRequest,
  ListServicesRequest,
  ListServicesRequest_Filters,
  RemoveServiceRequest,
  ServiceSpec,
  TaskSpec,
  UpdateServiceRequest,
  UpdateServiceRequest_Rollback,
  Version,
  type ListServiceStatusesResponse_ServiceStatus,
  type Service,
} from "../../../proto/gen/messages.ts";
import { serviceObject } from "../../../lib/docker-objects/index.ts";
import type { OwnCalls } from "../../grpc/own-calls.ts";
import { isOlder } from "../api-version.ts";
import { knownTo, serviceBody } from "../bodies/service.ts";
import { Failure } from "../failure.ts";
import { findNetwork, findService } from "../find.ts";
import { boolOf, versionOf } from "../go-text.ts";
import { bodyOf, filtersOf, ok, writeList, type DockerRequest, type Handler } from "../request.ts";
import type { Json } from "../shape.ts";
import { inventedName } from "../invented-name.ts";

const { methods } = ControlService;

function modeName({ spec }: Service): string {
  if (spec?.global != null) return "global";
  if (spec?.replicatedJob != null) return "replicated-job";
  return spec?.globalJob == null ? "replicated" : "global-job";
}

function shown(service: Service, status?: ListServiceStatusesResponse_ServiceStatus): unknown {
  const object = serviceObject(service);
  if (status === undefined) return object;
  const { completedTasks, desiredTasks, runningTasks } = status;
  return {
    ...object,
    ServiceStatus: { RunningTasks: runningTasks, DesiredTasks: desiredTasks, CompletedTasks: completedTasks },
  };
}

export const listServices: Handler = async (request) => {
  const { calls, query, version } = request;
  const filters = filtersOf(request, 400);
  const isStatusWanted = !isOlder(version, "1.41") && boolOf(query, "status");
  filters.accept(["name", "id", "label", "mode", "runtime"]);
  const { services } = await calls.unary(
    methods.ListServices,
    ListServicesRequest.create({
      filters: ListServicesRequest_Filters.create({
        namePrefixes: filters.of("name"),
        idPrefixes: filters.of("id"),
        labels: filters.pairs("label"),
        runtimes: filters.of("runtime").length > 0 ? filters.of("runtime") : ["container"],
      }),
    }),
  );
  const found = services.filter((service) => filters.allows("mode", modeName(service)));
  if (!isStatusWanted) return writeList(request, found, (service) => shown(service));
  const { statuses } = await calls.unary(
    methods.ListServiceStatuses,
    ListServiceStatusesRequest.create({ services: found.map(({ id }) => id) }),
  );
  const byId = new Map(statuses.map((status) => [status.serviceId, status]));
  return writeList(request, found, (service) => shown(service, byId.get(service.id)));
};

export const inspectService: Handler = async ({ calls, name, query }) => {
  const insertDefaults = boolOf(query, "insertDefaults");
  const found = await findService(calls, name);
  if (!insertDefaults) return ok(shown(found));
  const { service } = await calls.unary(
    methods.GetService,
    GetServiceRequest.create({ serviceId: found.id, insertDefaults }),
  );
  return ok(shown(service ?? found));
};

/** The body with ids of networks instead of names. Old clients have them beside the task. */
async function withNetworkIds(calls: OwnCalls, body: Json): Promise<Json> {
  const task = (body["TaskTemplate"] ?? {}) as Json;
  const ofTask = (task["Networks"] ?? []) as readonly (Json | null)[];
  const ofService = (body["Networks"] ?? []) as readonly (Json | null)[];
  const networks: Json[] = [];
  for (const each of ofTask.length > 0 ? ofTask : ofService) {
    const target = ((each ?? {})["Target"] as string | null | undefined) ?? "";
    networks.push({ ...each, Target: await networkId(calls, target) });
  }
  if (networks.length === 0) return body;
  return ofTask.length > 0
    ? { ...body, TaskTemplate: { ...task, Networks: networks } }
    : { ...body, Networks: networks };
}

async function networkId(calls: OwnCalls, target: string): Promise<string> {
  try {
    return (await findNetwork(calls, target)).id;
  } catch (error) {
    // A stock engine does not classify this error.
    if (error instanceof Failure && error.status === 404) throw new Failure(500, error.message);
    throw error;
  }
}

function withAuth(spec: ServiceSpec, registryAuth: string): ServiceSpec {
  const container = spec.task?.container ?? null;
  if (registryAuth === "" || container === null || spec.task === null) return spec;
  const pullOptions = ContainerSpec_PullOptions.create({ registryAuth });
  return ServiceSpec.patch(spec, {
    task: TaskSpec.patch(spec.task, { container: ContainerSpec.patch(container, { pullOptions }) }),
  });
}

function authHeader({ message }: DockerRequest): string {
  const header = message.headers["x-registry-auth"];
  return typeof header === "string" ? header : "";
}

export const createService: Handler = async (request) => {
  const { calls, version } = request;
  const body = await withNetworkIds(calls, knownTo(version, await bodyOf(request, serviceBody)));
  const read = serviceBody.read(body);
  const named =
    read.annotations === null || read.annotations.name !== ""
      ? read
      : ServiceSpec.patch(read, { annotations: inventedName(read.annotations) });
  const { service } = await calls.unary(
    methods.CreateService,
    CreateServiceRequest.create({ spec: withAuth(named, authHeader(request)) }),
  );
  return { status: 201, body: { ID: service?.id ?? "" } };
};

/** Where an update without credentials has them from. Throws Failure. */
function keptAuth(from: string, { previousSpec, spec }: Service): string {
  if (from !== "" && from !== "spec" && from !== "previous-spec")
    throw new Failure(500, "unsupported registryAuthFrom value");
  if (from === "previous-spec" && previousSpec === null)
    throw new Failure(500, "service does not have a previous spec");
  const source = from === "previous-spec" ? previousSpec : spec;
  return source?.task?.container?.pullOptions?.registryAuth ?? "";
}

const rollbacks: Readonly<Record<string, UpdateServiceRequest_Rollback>> = {
  "": UpdateServiceRequest_Rollback.NONE,
  none: UpdateServiceRequest_Rollback.NONE,
  previous: UpdateServiceRequest_Rollback.PREVIOUS,
};

export const updateService: Handler = async (request) => {
  const { calls, name, query, version } = request;
  const given = await bodyOf(request, serviceBody);
  const index = versionOf(query, "service");
  const body = await withNetworkIds(calls, knownTo(version, given));
  const read = serviceBody.read(body);
  const before = await findService(calls, name);
  const auth = authHeader(request) || keptAuth(query.get("registryAuthFrom") ?? "", before);
  const wish = query.get("rollback") ?? "";
  const rollback = rollbacks[wish];
  if (rollback === undefined) throw new Failure(500, `unrecognized rollback option ${wish}`);
  await calls.unary(
    methods.UpdateService,
    UpdateServiceRequest.create({
      serviceId: before.id,
      serviceVersion: Version.create({ index }),
      spec: withAuth(read, auth),
      rollback,
    }),
  );
  return ok({ Warnings: null });
};

export const removeService: Handler = async ({ calls, name }) => {
  const { id } = await findService(calls, name);
  await calls.unary(methods.RemoveService, RemoveServiceRequest.create({ serviceId: id }));
  return ok();
};
