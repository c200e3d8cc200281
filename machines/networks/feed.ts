/**
 * From changes of the cluster's objects to facts of the graph. Most changes of tasks are state reports that change nothing
 * here; they are filtered out first.
 */
import type { Network, NetworkService, Node, Service, Task } from "../../proto/gen/messages.ts";
import { isSameMessage } from "../same-message.ts";
import { hasEndpoints } from "../policy/facts.ts";
import { attachmentsOf, isReady, networkFact, nodeFact, serviceFacts, taskFact } from "./facts.ts";
import type { NetworkGraph } from "./graph.ts";

/** Finds a network by its id or name, as in a spec. */
type FindNetwork = (target: string) => Network | undefined;

export class NetworkFeed {
  readonly #graph: NetworkGraph;
  readonly #find: FindNetwork;
  /** Keys of the facts of each task and each service, by its id. */
  readonly #tasks = new Map<string, readonly string[]>();
  readonly #services = new Map<string, readonly NetworkService[]>();

  constructor(graph: NetworkGraph, find: FindNetwork) {
    this.#graph = graph;
    this.#find = find;
  }

  taskChanged(old: Task | null, now: Task | null): void {
    const task = now ?? old;
    if (task === null || (old !== null && now !== null && isToldAlike(old, now))) return;
    const before = this.#tasks.get(task.id) ?? [];
    const keys: string[] = [];
    for (const attachment of now === null ? [] : attachmentsOf(now)) {
      if (attachment.network === null) continue;
      const fact = taskFact(task, attachment);
      keys.push(fact.key);
      this.#graph.setTask(fact.key, fact, networkFact(attachment.network));
    }
    for (const key of before) if (!keys.includes(key)) this.#graph.setTask(key, null, null);
    if (keys.length === 0) this.#tasks.delete(task.id);
    else this.#tasks.set(task.id, keys);
  }

  serviceChanged(old: Service | null, now: Service | null): void {
    const service = now ?? old;
    if (service === null) return;
    const before = this.#services.get(service.id) ?? [];
    const facts = now === null ? [] : serviceFacts(now, (target) => this.#find(target)?.id ?? null);
    for (const fact of facts) {
      if (!before.some((each) => isSameMessage(each, fact))) this.#graph.setService(fact.key, fact);
    }
    for (const { key } of before) if (!facts.some((each) => each.key === key)) this.#graph.setService(key, null);
    if (facts.length === 0) this.#services.delete(service.id);
    else this.#services.set(service.id, facts);
  }

  nodeChanged(old: Node | null, now: Node | null): void {
    const node = now ?? old;
    if (node === null) return;
    const fact = now === null ? null : nodeFact(now);
    if (fact !== null && old !== null && isSameMessage(fact, nodeFact(old))) return;
    this.#graph.setNode(node.id, fact);
  }
}

function isToldAlike(old: Task, now: Task): boolean {
  const has = hasEndpoints(now);
  if (has !== hasEndpoints(old)) return false;
  return (
    !has ||
    (old.nodeId === now.nodeId &&
      isReady(old) === isReady(now) &&
      (old.networks === now.networks || isSameMessage(old.networks, now.networks)) &&
      isSameMessage(old.serviceAnnotations, now.serviceAnnotations) &&
      isSameMessage(old.annotations, now.annotations) &&
      isSameMessage(old.spec?.container?.hostname, now.spec?.container?.hostname))
  );
}
