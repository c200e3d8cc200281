/** `/networks`: those of the cluster. */
import {
  ControlService,
  CreateNetworkRequest,
  ListNetworksRequest,
  RemoveNetworkRequest,
  type Network,
} from "../../../proto/gen/messages.ts";
import { networkObject } from "../../../lib/docker-objects/index.ts";
import { networkBody } from "../bodies/network.ts";
import { Failure, notHere } from "../failure.ts";
import type { Filters } from "../filters.ts";
import { findNetwork } from "../find.ts";
import { isOlder } from "../api-version.ts";
import { bodyOf, demandJson, filtersOf, ok, writeList, type DockerRequest, type Handler } from "../request.ts";

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

function isDangling(filters: Filters): boolean | null {
  const [wish] = filters.of("dangling");
  if (wish === undefined) return null;
  return wish === "true" || wish === "1";
}

function passes(request: DockerRequest, filters: Filters, network: Network): boolean {
  const { annotations } = network.spec ?? {};
  const wantsDangling = isDangling(filters);
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

export const listNetworks: Handler = async (request) => {
  const filters = filtersOf(request).accept(known);
  const type = filters.of("type").find((each) => each !== "custom" && each !== "builtin");
  if (type !== undefined) throw new Failure(500, `invalid filter: 'type'='${type}'`);
  const networks = (await networksOf(request)).filter((network) => passes(request, filters, network));
  return writeList(request, networks, networkObject);
};

export const inspectNetwork: Handler = async ({ calls, name, query }) => {
  const scope = query.get("scope") ?? "";
  if (scope !== "" && scope !== "swarm") throw new Failure(404, `network ${name} not found`);
  return ok(networkObject(await findNetwork(calls, name)));
};

export const createNetwork: Handler = async (request) => {
  demandJson(request);
  const body = await bodyOf(request, networkBody);
  const spec = networkBody.read(body);
  const name = spec.annotations?.name ?? "";
  const driver = (body["Driver"] as string | undefined) ?? "";
  const scope = (body["Scope"] as string | undefined) ?? "";
  if (name.trim() === "") throw new Failure(isOlder(request.version, "1.44") ? 500 : 400, `invalid name: ${name}`);
  const isTaken =
    predefined.has(name) || (await networksOf(request)).some(({ spec: each }) => each?.annotations?.name === name);
  if (isTaken) throw new Failure(409, `network with name ${name} already exists`);
  if (!drivers.includes(driver || "bridge")) throw new Failure(404, `plugin ${JSON.stringify(driver)} not found`);
  if (body["ConfigOnly"] === true || (driver !== "overlay" && scope !== "swarm"))
    throw notHere(
      "configuration-only networks and those of other drivers than overlay",
      "use --driver overlay or --scope swarm",
    );
  const { network } = await request.calls.unary(methods.CreateNetwork, CreateNetworkRequest.create({ spec }));
  return { status: 201, body: { Id: network?.id ?? "", Warning: "" } };
};

export const removeNetwork: Handler = async ({ calls, name }) => {
  const { id } = await findNetwork(calls, name);
  await calls.unary(methods.RemoveNetwork, RemoveNetworkRequest.create({ networkId: id, name: "" }));
  return { status: 204 };
};

export const pruneNetworks: Handler = async (request) => {
  filtersOf(request).accept(["label", "label!", "until"]);
  // A stock manager keeps the cluster's networks: they may be used by services whose tasks are elsewhere.
  return ok({ NetworksDeleted: null });
};
