/**
 * Removes stacks: services, then, when their tasks have ended, secrets, configs and networks, which running tasks still use;
 * tasks of unreachable nodes are not awaited.
 */
import { nodeNames } from "../../machines/node-names.ts";
import {
  ControlService,
  ListTasksRequest_Filters,
  NodeStatus_State,
  RemoveConfigRequest,
  RemoveNetworkRequest,
  RemoveSecretRequest,
  RemoveServiceRequest,
  SelectBy,
  WatchRequest_WatchEntry,
  type Node,
  type Service,
  type Task,
  type WatchActionKind,
} from "../../proto/gen/messages.ts";
import { taskName } from "../../machines/list-filters.ts";
import { isEnded, observedState } from "../../machines/task.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { listNodes, listTasks, type ManagerClient } from "../manager-client.ts";
import { UserError } from "../../lib/user-error.ts";
import { everyAction, watch } from "../watching.ts";
import { nameOf, ownOf, surroundings } from "./held.ts";

const methods = ControlService.methods;

/** Watch's action for the removal of an object. */
const removedAction = 4;
/** Delay before awaited tasks are listed, in milliseconds: most end sooner. */
const silenceMs = 5_000;
/** Retry interval for a network whose last task has just ended, in milliseconds, … */
const networkRetryMs = 250;
/** … and number of attempts: orchestration and reaping take well below a second. */
const networkAttemptsMax = 40;

interface RemoveOptions {
  /** Do not wait for the tasks to end. */
  readonly isDetached: boolean;
  print(text: string): void;
  remark(text: string): void;
}

/** Ignores an object that is already removed. */
async function unlessGone(call: Promise<unknown>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof RpcError && error.code === Status.NOT_FOUND)) throw error;
  }
}

function entriesFor(services: readonly Service[]): readonly WatchRequest_WatchEntry[] {
  const action = everyAction as WatchActionKind;
  return [
    ...services.map(({ id }) =>
      WatchRequest_WatchEntry.create({ kind: "task", action, filters: [SelectBy.create({ serviceId: id })] }),
    ),
    WatchRequest_WatchEntry.create({ kind: "node", action }),
  ];
}

/** Resolves when no task of these services can still end; reports tasks left on unreachable nodes. */
async function untilEnded(client: ManagerClient, services: readonly Service[], options: RemoveOptions): Promise<void> {
  if (services.length === 0) return;
  const tasks = new Map<string, Task>();
  const nodes = new Map<string, Node>();
  const done = Promise.withResolvers<void>();
  const removed = new Set<string>();
  let isListed = false;

  /** A stock manager keeps the tasks of a removed job: wait for their end, not their absence. */
  function isAwaited(task: Task): boolean {
    const { nodeId } = task;
    if (isEnded(observedState(task))) return false;
    const state = nodes.get(nodeId)?.status?.state;
    // A task without a node waits only for the orchestrator.
    return nodeId === "" || state === NodeStatus_State.READY || state === NodeStatus_State.UNKNOWN;
  }

  function awaited(): readonly Task[] {
    return [...tasks.values()].filter(isAwaited);
  }

  function judge(): void {
    if (isListed && awaited().length === 0) done.resolve();
  }

  const watching = watch(client, entriesFor(services), ({ events }) => {
    for (const { action, object } of events) {
      const task = object?.task ?? null;
      if (object?.node != null) nodes.set(object.node.id, object.node);
      if (task === null) continue;
      if (action === removedAction) {
        removed.add(task.id);
        tasks.delete(task.id);
      } else if (!removed.has(task.id)) tasks.set(task.id, task);
    }
    judge();
  });
  const speaking = setTimeout(() => {
    const nameOf = nodeNames(nodes.values());
    const names = awaited().map((task) => {
      return nodes.has(task.nodeId) ? `${taskName(task)} on ${nameOf(task.nodeId)}` : taskName(task);
    });
    if (names.length > 0) options.remark(`waiting for tasks to end: ${names.toSorted().join(", ")}`);
  }, silenceMs);
  try {
    await watching.started;
    const serviceIds = services.map(({ id }) => id);
    const [listed, known] = await Promise.all([
      listTasks(client, ListTasksRequest_Filters.create({ serviceIds })),
      listNodes(client),
    ]);
    for (const node of known) if (!nodes.has(node.id)) nodes.set(node.id, node);
    for (const task of listed) if (!removed.has(task.id)) tasks.set(task.id, task);
    isListed = true;
    judge();
    await Promise.race([done.promise, watching.broken]);
  } finally {
    clearTimeout(speaking);
    watching.cancel();
  }
  for (const task of tasks.values()) {
    if (isEnded(observedState(task))) continue;
    options.remark(`${taskName(task)} may still be running on ${task.nodeId}, which is unreachable`);
  }
}

/** Retries for a while when ending tasks still use the network. */
async function removeNetwork(client: ManagerClient, networkId: string): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await unlessGone(client.call(methods.RemoveNetwork, RemoveNetworkRequest.create({ networkId })));
      return;
    } catch (error) {
      const code = error instanceof RpcError ? error.code : null;
      // The code depends on the manager.
      const isHeld = code === Status.FAILED_PRECONDITION || code === Status.INVALID_ARGUMENT;
      if (!isHeld || attempt >= networkAttemptsMax) throw error;
      await new Promise((resolve) => void setTimeout(resolve, networkRetryMs));
    }
  }
}

/** Returns whether anything was found. Throws UserError for objects that could not be removed, after removing the rest. */
export async function removeStack(client: ManagerClient, stack: string, options: RemoveOptions): Promise<boolean> {
  const { services, networks, secrets, configs } = ownOf(await surroundings(client, stack), stack);
  if (services.length + networks.length + secrets.length + configs.length === 0) return false;
  const failures: string[] = [];
  const attempt = async (kind: string, name: string, removal: () => Promise<void>): Promise<void> => {
    options.print(`Removing ${kind} ${name}`);
    try {
      await removal();
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      failures.push(`${kind} ${name}: ${error.message}`);
    }
  };
  for (const service of services) {
    await attempt("service", nameOf(service), () =>
      unlessGone(client.call(methods.RemoveService, RemoveServiceRequest.create({ serviceId: service.id }))),
    );
  }
  if (!options.isDetached) await untilEnded(client, services, options);
  for (const secret of secrets) {
    await attempt("secret", nameOf(secret), () =>
      unlessGone(client.call(methods.RemoveSecret, RemoveSecretRequest.create({ secretId: secret.id }))),
    );
  }
  for (const config of configs) {
    await attempt("config", nameOf(config), () =>
      unlessGone(client.call(methods.RemoveConfig, RemoveConfigRequest.create({ configId: config.id }))),
    );
  }
  for (const network of networks) await attempt("network", nameOf(network), () => removeNetwork(client, network.id));
  if (failures.length > 0) throw new UserError(`cannot remove all of stack ${stack}: ${failures.join("; ")}`);
  return true;
}
