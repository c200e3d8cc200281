/** Client of Control: calls with a deadline, and lookup by id, name or unique prefix. */
import { taskName } from "../machines/list-filters.ts";
import type { MethodDescriptor } from "../proto/codec.ts";
import {
  ControlService,
  GetClusterRequest,
  ListClustersRequest,
  ListNetworksRequest,
  ListNodesRequest,
  ListServicesRequest,
  ListTasksRequest,
  OperatorService,
  StatusRequest,
  type Cluster,
  type Network,
  type Node,
  type Service,
  type Task,
} from "../proto/gen/messages.ts";
import { RpcError, Status, type RpcChannel } from "../runtime/ports/rpc.ts";
import type { Shell } from "./shell.ts";
import { NotThereError, notThere, UserError } from "../lib/user-error.ts";

/** Longer than a manager waits for a leader (15 s). */
const callTimeoutMs = 25_000;
/** Attempts of an update that meets concurrent writers. */
const updateAttemptsMax = 10;

const methods = ControlService.methods;

export interface ManagerClient {
  readonly channel: RpcChannel;
  call<Request, Response>(method: MethodDescriptor<Request, Response>, request: Request): Promise<Response>;
}

/** Connects, runs `work`, and always closes. */
export async function withManager<Result>(
  shell: Shell,
  work: (client: ManagerClient) => Promise<Result>,
): Promise<Result> {
  const channel = await shell.connect();
  try {
    return await work({
      channel,
      call: (method, request) => channel.unary(method, request, { timeoutMs: callTimeoutMs }),
    });
  } finally {
    channel.close();
  }
}

/** Retries a read-modify-write on a version conflict. */
export async function retryingConflicts<Result>(update: () => Promise<Result>): Promise<Result> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await update();
    } catch (error) {
      const isConflict = error instanceof RpcError && error.code === Status.ABORTED;
      if (!isConflict || attempt >= updateAttemptsMax) throw error;
    }
  }
}

export async function listNodes(client: ManagerClient): Promise<readonly Node[]> {
  return (await client.call(methods.ListNodes, ListNodesRequest.create({}))).nodes;
}

export async function listServices(client: ManagerClient): Promise<readonly Service[]> {
  return (await client.call(methods.ListServices, ListServicesRequest.create({}))).services;
}

export async function listNetworks(client: ManagerClient): Promise<readonly Network[]> {
  return (await client.call(methods.ListNetworks, ListNetworksRequest.create({}))).networks;
}

export async function listTasks(
  client: ManagerClient,
  filters: ListTasksRequest["filters"] = null,
): Promise<readonly Task[]> {
  return (await client.call(methods.ListTasks, ListTasksRequest.create({ filters }))).tasks;
}

export async function cluster(client: ManagerClient): Promise<Cluster> {
  const { clusters } = await client.call(methods.ListClusters, ListClustersRequest.create({}));
  const first = clusters[0];
  if (first === undefined) throw new UserError("the cluster is still being set up: try again in a moment");
  const { cluster: whole } = await client.call(methods.GetCluster, GetClusterRequest.create({ clusterId: first.id }));
  return whole ?? first;
}

/** Full id, then exact name, then unique prefix of an id. */
function pick<Item extends { readonly id: string }>(
  noun: string,
  text: string,
  items: readonly Item[],
  nameOf: (item: Item) => string,
): Item {
  const exact = items.find(({ id }) => id === text);
  if (exact !== undefined) return exact;
  for (const matches of [
    items.filter((item) => nameOf(item) === text),
    items.filter(({ id }) => id.startsWith(text)),
  ]) {
    if (matches.length > 1) throw new UserError(`${noun} ${text} is ambiguous (${matches.length} matches found)`);
    if (matches[0] !== undefined) return matches[0];
  }
  throw notThere(noun, text);
}

export function nodeName(node: Node): string {
  return node.description?.hostname ?? "";
}

export function serviceName(service: Service): string {
  return service.spec?.annotations?.name ?? "";
}

export function networkName(network: Network): string {
  return network.spec?.annotations?.name ?? "";
}

/** `self` is the manager that answers. */
export async function findNode(client: ManagerClient, text: string): Promise<Node> {
  const nodes = await listNodes(client);
  if (text !== "self") return pick("node", text, nodes, nodeName);
  const { managerId } = await client.call(OperatorService.methods.Status, StatusRequest.create({}));
  return pick("node", managerId, nodes, nodeName);
}

export async function findService(client: ManagerClient, text: string): Promise<Service> {
  return pick("service", text, await listServices(client), serviceName);
}

/** For `inspect` and `ps`, where Docker's command words "not found" differently. */
export async function lookUpService(client: ManagerClient, text: string): Promise<Service> {
  try {
    return await findService(client, text);
  } catch (error) {
    if (error instanceof NotThereError) throw new NotThereError(`no such service: ${text}`);
    throw error;
  }
}

export async function findNetwork(client: ManagerClient, text: string): Promise<Network> {
  return pick("network", text, await listNetworks(client), networkName);
}

/** Also accepts `web.2`: the newest task of that slot. */
export async function findTask(client: ManagerClient, text: string): Promise<Task> {
  const tasks = await listTasks(client);
  const inSlot = tasks.filter((task) => taskName(task).startsWith(`${text}.`) && /\.[^.]+$/.test(text));
  const newest = inSlot.toSorted(byAge)[0];
  return newest ?? pick("task", text, tasks, taskName);
}

/** Newest first. */
export function byAge(a: Task, b: Task): number {
  const seconds = (b.meta?.createdAt?.seconds ?? 0) - (a.meta?.createdAt?.seconds ?? 0);
  return seconds !== 0 ? seconds : (b.meta?.createdAt?.nanos ?? 0) - (a.meta?.createdAt?.nanos ?? 0);
}
