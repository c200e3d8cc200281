/** Names of the cluster's objects, for completion; none when the manager does not answer at once. */
import { Actors, type Process } from "../../proto/feed/actors.ts";
import {
  ActorSelection,
  ListConfigsRequest,
  ListResourcesRequest,
  ListSecretsRequest,
  ListVolumesRequest,
  ControlService,
  type Node,
} from "../../proto/gen/messages.ts";
import { isJob } from "../../machines/orchestration/service-mode.ts";
import { taskName } from "../../machines/list-filters.ts";
import { isPolicyKind } from "../../machines/policy/objects.ts";
import type { Completable } from "../help/description.ts";
import { watchActors } from "../inspect/feed.ts";
import {
  listNetworks,
  listNodes,
  listServices,
  listTasks,
  nodeName,
  serviceName,
  networkName,
  type ManagerClient,
} from "../manager-client.ts";
import { predefinedLabel } from "../network/filters.ts";
import { nameOf as policyName } from "../policy/objects.ts";
import type { Shell } from "../shell.ts";
import { stackLabel } from "../stack/names.ts";

/** In milliseconds; the user is waiting. */
const answerTimeoutMs = 700;

const methods = ControlService.methods;

type Named = { readonly spec: { readonly annotations: { readonly name: string } | null } | null };

function nameOf({ spec }: Named): string {
  return spec?.annotations?.name ?? "";
}

/** Unique names: a hostname shared by several nodes would be rejected as ambiguous. */
function completedNodes(nodes: readonly Node[]): readonly string[] {
  const byName = Map.groupBy(nodes, nodeName);
  return nodes.map((node) => (byName.get(nodeName(node))?.length === 1 && nodeName(node)) || node.id);
}

async function namesOf(client: ManagerClient, kind: Completable): Promise<readonly string[]> {
  switch (kind) {
    case "actor":
      return (await watchedProcesses(client)).flatMap(({ actors }) => [...actors.keys()]);
    case "process":
      return (await watchedProcesses(client)).flatMap(({ id, hostname }) => [id, hostname]);
    case "node":
      return completedNodes(await listNodes(client));
    case "service":
      return (await listServices(client)).map(serviceName);
    case "job":
      return (await listServices(client)).filter(({ spec }) => isJob(spec)).map(serviceName);
    case "network":
      // Predefined engine networks are hidden, as in listings.
      return (await listNetworks(client))
        .filter(({ spec }) => spec?.annotations?.labels[predefinedLabel] === undefined)
        .map(networkName);
    case "secret":
      return (await client.call(methods.ListSecrets, ListSecretsRequest.create({}))).secrets.map(nameOf);
    case "config":
      return (await client.call(methods.ListConfigs, ListConfigsRequest.create({}))).configs.map(nameOf);
    case "volume":
      return (await client.call(methods.ListVolumes, ListVolumesRequest.create({}))).volumes.map(nameOf);
    case "task":
      return (await listTasks(client)).map(taskName);
    case "stack":
      return (await listServices(client)).map(({ spec }) => spec?.annotations?.labels[stackLabel] ?? "");
    case "policy": {
      const { resources } = await client.call(methods.ListResources, ListResourcesRequest.create({}));
      const own = resources.filter(({ kind }) => isPolicyKind(kind));
      // Policies need only a name; other objects need their kind, too.
      return own.map((each) => (each.kind === "NetworkPolicy" ? policyName(each) : `${each.kind}/${policyName(each)}`));
    }
    case "file":
    case "scenario":
    case "verb":
      return [];
  }
}

/** The processes whose feed has begun when the user has waited for long enough. */
async function watchedProcesses({ channel }: ManagerClient): Promise<readonly Process[]> {
  const actors = new Actors();
  const selection = ActorSelection.create({ withoutSteps: true });
  const watch = watchActors({ channel, selection, actors, now: () => 0 });
  const late = Promise.withResolvers<void>();
  const timer = setTimeout(late.resolve, answerTimeoutMs);
  try {
    await Promise.race([watch.settled, late.promise]);
  } finally {
    clearTimeout(timer);
    watch.cancel();
  }
  // A snapshot that is still arriving has names already.
  return [...actors.processes.values()].map((process) => ({ ...process, actors: process.incoming ?? process.actors }));
}

/** Sorted, without duplicates; empty when the manager cannot be reached. */
export async function objectNames(shell: Shell, kinds: readonly Completable[]): Promise<readonly string[]> {
  try {
    const channel = await shell.connect();
    try {
      const client: ManagerClient = {
        channel,
        call: (method, request) => channel.unary(method, request, { timeoutMs: answerTimeoutMs }),
      };
      const names = await Promise.all(kinds.map((kind) => namesOf(client, kind)));
      return [...new Set(names.flat())].filter((name) => name !== "").toSorted();
    } finally {
      channel.close();
    }
  } catch {
    // Completion fails silently; the command itself reports the error.
    return [];
  }
}
