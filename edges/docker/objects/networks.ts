/** `/networks`: those of the cluster. */
import {
  ControlService,
  CreateNetworkRequest,
  ListNetworksRequest,
  NodeStatus_State,
  RemoveNetworkRequest,
  TaskState,
  type Network,
  type NetworkAttachmentConfig,
  type Task,
} from "../../../proto/gen/messages.ts";
import { networkObject } from "../../../lib/docker-objects/index.ts";
import type { DockerObject } from "../../../lib/docker-objects/values.ts";
import { RpcError, Status } from "../../../runtime/ports/rpc.ts";
import { networkBody } from "../bodies/network.ts";
import { badRequest, Failure, notHere } from "../failure.ts";
import type { Filters } from "../filters.ts";
import { parseBool, timeBefore } from "../go-text.ts";
import { findNetwork } from "../find.ts";
import { isOlder } from "../api-version.ts";
import {
  bodyOf,
  demandJson,
  filtersOf,
  hasOldWords,
  ok,
  writeList,
  type DockerRequest,
  type Handler,
} from "../request.ts";
import type { Json } from "../shape.ts";
import { isOver, untilMet } from "../until-met.ts";

const { methods } = ControlService;
const known = ["dangling", "driver", "id", "label", "name", "scope", "type"];
/** Networks of every engine: a cluster has none of these names. */
const predefined = new Set(["bridge", "host", "none", "default"]);
/** The drivers of engines; without `Scope: swarm`, the networks of all but the first belong to one engine. */
const drivers: readonly string[] = ["overlay", "bridge", "host", "ipvlan", "macvlan", "null"];

async function networksOf({ calls }: Pick<DockerRequest, "calls">): Promise<readonly Network[]> {
  const { networks } = await calls.unary(methods.ListNetworks, ListNetworksRequest.create({}));
  return networks.filter(({ spec }) => spec?.annotations?.labels["com.docker.swarm.predefined"] !== "true");
}

function driverOf({ driverState, spec }: Network): string {
  return driverState?.name || spec?.driverConfig?.name || "";
}

function isUsed({ backend }: DockerRequest, { id }: Network): boolean {
  for (const _task of backend.store.tasksReferencing(id)) return true;
  for (const { spec } of backend.store.all("service")) {
    const attachments = [...(spec?.task?.networks ?? []), ...(spec?.networks ?? [])];
    if (attachments.some(({ target }) => target === id)) return true;
  }
  return false;
}

/** Null if the filter is not set. Throws Failure. */
function isDangling(filters: Filters): boolean | null {
  const [wish, ...others] = filters.of("dangling");
  if (others.length > 0) throw badRequest('got more than one value for filter key "dangling"');
  if (wish === undefined) return null;
  if (!["0", "1", "false", "true"].includes(wish))
    throw badRequest('invalid value for filter \'dangling\', must be "true" (or "1"), or "false" (or "0")');
  return wish === "true" || wish === "1";
}

function passes(request: DockerRequest, filters: Filters, wantsDangling: boolean | null, network: Network): boolean {
  const { annotations } = network.spec ?? {};
  return (
    filters.allows("driver", driverOf(network)) &&
    (filters.of("id").length === 0 || filters.of("id").some((prefix) => network.id.startsWith(prefix))) &&
    filters.matches("name", annotations?.name ?? "") &&
    filters.matchesLabels("label", annotations?.labels ?? {}) &&
    filters.allows("scope", "swarm") &&
    filters.allows("type", "custom") &&
    (wantsDangling === null || wantsDangling !== isUsed(request, network))
  );
}

/** In the version of the client. The cluster's networks always have IPv4 addresses. */
export function versionedNetwork({ version }: Pick<DockerRequest, "version">, network: Network): DockerObject {
  const object = networkObject(network);
  return isOlder(version, "1.48") ? object : { ...object, EnableIPv4: true };
}

/** Throws Failure if the body asks for a network without IPv4. Engines before 28.0 know neither the field nor the options. */
export function demandIPv4({ version }: Pick<DockerRequest, "version">, body: Json): void {
  if (isOlder(version, "1.48")) return;
  const options = (body["Options"] as Readonly<Record<string, string>> | null | undefined) ?? {};
  const wishOf = (family: "4" | "6"): boolean => {
    const name = `com.docker.network.enable_ipv${family}`;
    const given = (body[`EnableIPv${family}`] as boolean | null | undefined) ?? null;
    if (given !== null || !Object.hasOwn(options, name)) return given ?? true;
    const wish = parseBool(options[name] ?? "");
    if (wish === null) throw badRequest(`driver-opt ${JSON.stringify(name)} is not a valid bool`);
    return wish;
  };
  const hasIPv4 = wishOf("4");
  wishOf("6");
  if (!hasIPv4) throw badRequest("IPv4 cannot be disabled in a Swarm scoped network");
}

export const listNetworks: Handler = async (request) => {
  const filters = filtersOf(request).accept(known);
  const type = filters.of("type").find((each) => each !== "custom" && each !== "builtin");
  if (type !== undefined) throw new Failure(500, `invalid filter: 'type'='${type}'`);
  const wantsDangling = isDangling(filters);
  const networks = (await networksOf(request)).filter((network) => passes(request, filters, wantsDangling, network));
  return writeList(request, networks, (network) => versionedNetwork(request, network));
};

export const inspectNetwork: Handler = async (request) => {
  const { calls, name, query } = request;
  const scope = query.get("scope") ?? "";
  if (scope !== "" && scope !== "swarm") throw new Failure(404, `network ${name} not found`);
  return ok(versionedNetwork(request, await findNetwork(calls, name)));
};

function unnamed({ version }: DockerRequest, name: string): Failure {
  const text = isOlder(version, "1.48") ? name : "name is empty";
  return new Failure(isOlder(version, "1.44") ? 500 : 400, `invalid name: ${text}`);
}

export const createNetwork: Handler = async (request) => {
  demandJson(request);
  const body = await bodyOf(request, networkBody);
  const spec = networkBody.read(body);
  const name = spec.annotations?.name ?? "";
  const driver = (body["Driver"] as string | undefined) ?? "";
  const scope = (body["Scope"] as string | undefined) ?? "";
  if (name.trim() === "") throw unnamed(request, name);
  const isTaken =
    predefined.has(name) || (await networksOf(request)).some(({ spec: each }) => each?.annotations?.name === name);
  if (isTaken) throw new Failure(409, `network with name ${name} already exists`);
  if (!drivers.includes(driver || "bridge")) throw new Failure(404, `plugin ${JSON.stringify(driver)} not found`);
  if (body["ConfigOnly"] === true || (driver !== "overlay" && scope !== "swarm"))
    throw notHere(
      "configuration-only networks and those of other drivers than overlay",
      "use --driver overlay or --scope swarm",
    );
  demandIPv4(request, body);
  const { network } = await request.calls.unary(methods.CreateNetwork, CreateNetworkRequest.create({ spec }));
  return { status: 201, body: { Id: network?.id ?? "", Warning: "" } };
};

/** Longest wait for tasks that stop, in milliseconds: most have 10 s for it, and clients in Python give up after 60. */
const stoppingMsMax = 30_000;

/**
 * Resolves when the network's tasks have stopped, if all of them are stopping: `docker stack rm` removes networks at once after services,
 * and a stock manager lets it. Tasks on lost nodes are not awaited, nor is anything while a service has the network: the removal will be
 * refused.
 */
async function untilStopped({ backend, signal }: DockerRequest, network: Network): Promise<void> {
  const { store } = backend;
  const isThere = (task: Task): boolean =>
    !isOver(task) && store.get("node", task.nodeId)?.status?.state !== NodeStatus_State.DOWN;
  const isStopping = ({ desiredState, serviceId }: Task): boolean =>
    desiredState > TaskState.RUNNING || (serviceId !== "" && store.get("service", serviceId) === undefined);
  const names = new Set([network.id, network.spec?.annotations?.name ?? ""]);
  const isNamed = ({ target }: NetworkAttachmentConfig): boolean => names.has(target);
  const isKept = [...store.all("service")].some(
    ({ spec }) => spec?.networks.some(isNamed) === true || spec?.task?.networks.some(isNamed) === true,
  );
  let users = [...store.all("task")].filter(
    (task) =>
      isThere(task) &&
      (task.networks.some((each) => each.network?.id === network.id) || task.spec?.networks.some(isNamed) === true),
  );
  if (isKept || !users.every(isStopping)) return;
  const isFree = (): boolean => {
    users = users.flatMap(({ id }) => store.get("task", id) ?? []).filter(isThere);
    return users.length === 0;
  };
  await untilMet(backend, signal, isFree, stoppingMsMax);
}

export const removeNetwork: Handler = async (request) => {
  const { calls, name } = request;
  const network = await findNetwork(calls, name);
  calls.demand("operator");
  await untilStopped(request, network);
  if (request.signal.aborted) return null;
  await calls.unary(methods.RemoveNetwork, RemoveNetworkRequest.create({ networkId: network.id, name: "" }));
  return { status: 204 };
};

/** In milliseconds since the epoch; infinite without the filter. Throws Failure. */
function untilOf(request: DockerRequest, filters: Filters): number {
  const [until, ...others] = filters.of("until");
  const status = hasOldWords(request) ? 500 : 400;
  if (others.length > 0) throw new Failure(status, "more than one until filter specified");
  if (until === undefined) return Number.POSITIVE_INFINITY;
  const time = timeBefore(until, request.backend.clock.now());
  if (time === null) throw new Failure(status, `failed to parse value as time or duration: ${JSON.stringify(until)}`);
  return time;
}

/** Removes networks that are in no use: the ledger decides, as for each removal. The ingress network stays. */
export const pruneNetworks: Handler = async (request) => {
  const filters = filtersOf(request).accept(["label", "label!", "until"]);
  const until = untilOf(request, filters);
  const isMeant = ({ meta, spec }: Network): boolean => {
    const labels = spec?.annotations?.labels ?? {};
    const createdMs = (meta?.createdAt?.seconds ?? 0) * 1_000 + (meta?.createdAt?.nanos ?? 0) / 1e6;
    const isKept = filters.of("label!").length > 0 && filters.matchesLabels("label!", labels);
    return spec?.ingress !== true && createdMs <= until && filters.matchesLabels("label", labels) && !isKept;
  };
  request.calls.demand("operator");
  const removed: string[] = [];
  for (const { id, spec } of (await networksOf(request)).filter(isMeant)) {
    try {
      await request.calls.unary(methods.RemoveNetwork, RemoveNetworkRequest.create({ networkId: id, name: "" }));
      removed.push(spec?.annotations?.name ?? "");
    } catch (error) {
      // In use, or removed by another client meanwhile.
      const isKept =
        error instanceof RpcError && [Status.FAILED_PRECONDITION, Status.NOT_FOUND].some((code) => code === error.code);
      if (!isKept) throw error;
    }
  }
  return ok({ NetworksDeleted: removed.length === 0 ? null : removed });
};
