/** Finds the subject of a `why` call (a task, service, node, network or volume) and explains what it is waiting for. */
import { volumeName } from "../machines/volumes/csi/stages.ts";
import { explainNodeDataplane, explainTaskPolicy } from "../machines/explain/dataplane.ts";
import { explainNetwork, explainNodeNetworks } from "../machines/explain/network.ts";
import { taskName } from "../machines/list-filters.ts";
import {
  WhyResponse,
  type Network,
  type Node,
  type Reason,
  type Service,
  type Task,
  type Volume,
} from "../proto/gen/messages.ts";
import { RpcError, Status } from "../runtime/ports/rpc.ts";
import { nodeNames } from "../machines/node-names.ts";
import type { Store } from "../runtime/store/store.ts";
import { nameOf as networkName } from "../machines/allocation/networks.ts";

type Subject =
  | { readonly kind: "task"; readonly object: Task; readonly name: string }
  | { readonly kind: "service"; readonly object: Service; readonly name: string }
  | { readonly kind: "node"; readonly object: Node; readonly name: string }
  | { readonly kind: "network"; readonly object: Network; readonly name: string }
  | { readonly kind: "volume"; readonly object: Volume; readonly name: string };

/** Sources of reasons that are not in the store. */
interface Explainers {
  explainNode(node: Node): readonly Reason[];
  explainTask(task: Task): readonly Reason[] | Promise<readonly Reason[]>;
  explainService(service: Service): readonly Reason[] | Promise<readonly Reason[]>;
  explainVolume(volume: Volume): readonly Reason[] | Promise<readonly Reason[]>;
}

/** `text`: id, unique id prefix or name. Rejects with NOT_FOUND or INVALID_ARGUMENT. */
export async function explainSubject(store: Store, text: string, explainers: Explainers): Promise<WhyResponse> {
  const subject = find(store, text);
  const { kind, name, object } = subject;
  return WhyResponse.create({ kind, id: object.id, name, reasons: await reasonsFor(store, subject, explainers) });
}

function* subjects(store: Store): Iterable<Subject> {
  for (const object of store.all("service")) {
    yield { kind: "service", object, name: object.spec?.annotations?.name ?? "" };
  }
  for (const object of store.all("node")) yield { kind: "node", object, name: object.description?.hostname ?? "" };
  for (const object of store.all("network")) yield { kind: "network", object, name: networkName(object) };
  for (const object of store.all("volume")) yield { kind: "volume", object, name: volumeName(object) };
  for (const object of store.all("task")) yield { kind: "task", object, name: taskName(object) };
}

const ambiguousShown = 3;

function ambiguous(text: string, matches: readonly Subject[]): RpcError {
  const shown = matches.slice(0, ambiguousShown).map(({ kind, object }) => `${kind} ${object.id}`);
  const more = matches.length > shown.length ? `, and ${matches.length - shown.length} more` : "";
  return new RpcError(
    Status.INVALID_ARGUMENT,
    `${text} is ambiguous (${matches.length} matches found: ${shown.join(", ")}${more}): use an id`,
  );
}

/** By id, then by name, then by unique prefix of an id; `web.2` also means the newest task of that slot. */
function find(store: Store, text: string): Subject {
  if (text === "")
    throw new RpcError(Status.INVALID_ARGUMENT, "specify the id or name of a task, service, node, network or volume");
  const named: Subject[] = [];
  let slot: Subject | null = null;
  const prefixed: Subject[] = [];
  for (const subject of subjects(store)) {
    if (subject.object.id === text) return subject;
    if (subject.name === text) named.push(subject);
    if (subject.object.id.startsWith(text)) prefixed.push(subject);
    // Tasks are listed in order of creation, so the last one is the newest.
    if (subject.kind === "task" && subject.name.startsWith(`${text}.`)) slot = subject;
  }
  // A service and its network often share a name: the first kind wins.
  const alike = named.filter(({ kind }) => kind === named[0]?.kind);
  if (alike.length > 1) throw ambiguous(text, alike);
  const found = named[0] ?? slot;
  if (found !== null) return found;
  if (prefixed.length > 1) throw ambiguous(text, prefixed);
  const only = prefixed[0];
  if (only === undefined)
    throw new RpcError(Status.NOT_FOUND, `no task, service, node, network or volume has the id or name ${text}`);
  return only;
}

async function reasonsFor(store: Store, subject: Subject, explainers: Explainers): Promise<readonly Reason[]> {
  switch (subject.kind) {
    case "node": {
      const { object: node } = subject;
      const lacking = explainNodeNetworks(node, store.tasksByNode(node.id), store.all("network"));
      return [...explainers.explainNode(node), ...lacking, ...explainNodeDataplane(store.get("resource", node.id))];
    }
    case "network": {
      const [cluster] = store.all("cluster");
      const all = { networks: store.all("network"), services: store.all("service"), tasks: store.all("task") };
      return explainNetwork(subject.object, { ...all, nodes: store.all("node"), cluster });
    }
    case "task": {
      const { object: task } = subject;
      const said = store.get("resource", task.nodeId);
      const where = nodeNames(store.all("node"))(task.nodeId);
      return [...(await explainers.explainTask(task)), ...explainTaskPolicy(task, where, said)];
    }
    case "service":
      return explainers.explainService(subject.object);
    case "volume":
      return explainers.explainVolume(subject.object);
  }
}
