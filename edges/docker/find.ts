/** Finds the object that a path names, like a stock engine: by id, else by name, else by the beginning of its id. */
import {
  ControlService,
  ListConfigsRequest_Filters,
  ListNetworksRequest,
  ListNetworksRequest_Filters,
  ListNodesRequest_Filters,
  ListSecretsRequest_Filters,
  ListServicesRequest_Filters,
  ListTasksRequest_Filters,
  ListVolumesRequest,
  ListVolumesRequest_Filters,
  type Cluster,
  type Config,
  type Network,
  type Node,
  type Secret,
  type Service,
  type Task,
  type Volume,
} from "../../proto/gen/messages.ts";
import type { OwnCalls } from "../grpc/own-calls.ts";
import { Failure, notFound } from "./failure.ts";

const { methods } = ControlService;

interface Finder<Found> {
  readonly noun: string;
  /** The status of an answer about an ambiguous beginning of an id; default 500. */
  readonly ambiguous?: number;
  list(
    calls: OwnCalls,
    filters: { readonly names?: readonly string[]; readonly idPrefixes?: readonly string[] },
  ): Promise<readonly Found[]>;
}

async function find<Found extends { readonly id: string }>(
  { ambiguous = 500, list, noun }: Finder<Found>,
  calls: OwnCalls,
  input: string,
): Promise<Found> {
  if (input === "") throw notFound(noun, input);
  const byId = await list(calls, { idPrefixes: [input] });
  const exact = byId.find(({ id }) => id === input);
  if (exact !== undefined) return exact;
  const byName = await list(calls, { names: [input] });
  const found = byName.length > 0 ? byName : byId;
  if (found.length > 1) throw new Failure(ambiguous, `${noun} ${input} is ambiguous (${found.length} matches found)`);
  if (found[0] === undefined) throw notFound(noun, input);
  return found[0];
}

const services: Finder<Service> = {
  noun: "service",
  list: async (calls, filters) =>
    (await calls.unary(methods.ListServices, { filters: ListServicesRequest_Filters.create(filters) })).services,
};
const nodes: Finder<Node> = {
  noun: "node",
  list: async (calls, filters) =>
    (await calls.unary(methods.ListNodes, { filters: ListNodesRequest_Filters.create(filters) })).nodes,
};
const tasks: Finder<Task> = {
  noun: "task",
  list: async (calls, filters) =>
    (await calls.unary(methods.ListTasks, { filters: ListTasksRequest_Filters.create(filters) })).tasks,
};
const secrets: Finder<Secret> = {
  noun: "secret",
  list: async (calls, filters) =>
    (await calls.unary(methods.ListSecrets, { filters: ListSecretsRequest_Filters.create(filters) })).secrets,
};
const configs: Finder<Config> = {
  noun: "config",
  list: async (calls, filters) =>
    (await calls.unary(methods.ListConfigs, { filters: ListConfigsRequest_Filters.create(filters) })).configs,
};
const networks: Finder<Network> = {
  noun: "network",
  list: async (calls, filters) =>
    (
      await calls.unary(
        methods.ListNetworks,
        ListNetworksRequest.create({ filters: ListNetworksRequest_Filters.create(filters) }),
      )
    ).networks,
};

const volumes: Finder<Volume> = {
  noun: "volume",
  ambiguous: 400,
  list: async (calls, filters) =>
    (
      await calls.unary(
        methods.ListVolumes,
        ListVolumesRequest.create({ filters: ListVolumesRequest_Filters.create(filters) }),
      )
    ).volumes,
};

type Find<Found> = (calls: OwnCalls, input: string) => Promise<Found>;

export const findService: Find<Service> = (calls, input) => find(services, calls, input);
export const findNode: Find<Node> = (calls, input) => find(nodes, calls, input);
export const findTask: Find<Task> = (calls, input) => find(tasks, calls, input);
export const findSecret: Find<Secret> = (calls, input) => find(secrets, calls, input);
export const findConfig: Find<Config> = (calls, input) => find(configs, calls, input);
export const findNetwork: Find<Network> = (calls, input) => find(networks, calls, input);
export const findVolume: Find<Volume> = (calls, input) => find(volumes, calls, input);

export async function findCluster(calls: OwnCalls): Promise<Cluster> {
  const { clusters } = await calls.unary(methods.ListClusters, { filters: null });
  if (clusters[0] === undefined) throw new Failure(503, "the cluster is not known yet: try again");
  return clusters[0];
}
