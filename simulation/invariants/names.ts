/**
 * Names and virtual addresses of services, as tasks of simulated nodes resolve them.
 *
 * S46: at rest, a running task's node resolves the names in its networks exactly as the cluster has them: each service to its
 *      virtual address, and tasks to those that run; connections to a virtual address reach one of these tasks.
 * S47: at rest, a node without such tasks keeps no names.
 */
import { observedState } from "../../machines/task.ts";
import { TaskState, type Task } from "../../proto/gen/messages.ts";
import type { NameReply } from "../../runtime/ports/name-server.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { SimTrace } from "../../runtime/sim/trace.ts";
import { runningOn, type SimAgent } from "../nodes/nodes.ts";

function addressIn(task: Task, networkId: string): string | null {
  const attachment = task.networks.find(({ network }) => network?.id === networkId);
  return attachment?.addresses[0]?.split("/")[0] ?? null;
}

function isReady(task: Task): boolean {
  return task.desiredState === TaskState.RUNNING && observedState(task) === TaskState.RUNNING;
}

/** S46, S47; null if they hold. */
export function findUnnamed(store: Store, agents: readonly SimAgent[], trace: SimTrace): string | null {
  for (const agent of agents) {
    if (agent.network === null) continue;
    const asking = runningOn(agent)
      .map((id) => store.get("task", id))
      .filter((task) => task !== undefined && task.networks.length > 0 && task.spec?.generic?.kind !== undefined);
    const { namespaces, names } = agent.network;
    const isAlone = asking.length === 0 && namespaces.size === 0;
    if (isAlone && names.addresses.size + names.tables.length > 0)
      return `S47: ${agent.machine.name} has ${[...names.addresses, ...names.tables].join(" ")}, but no task that needs it`;
    for (const task of asking) {
      // Tasks of drivers that are not plugins use the node's own network.
      if (task === undefined || ![...namespaces.keys()].some((path) => path.endsWith(task.id))) continue;
      const problem = findWrongAnswer(store, agent, task);
      if (problem !== null) return `S46: on ${agent.machine.name} task ${task.id} ${problem}`;
      trace.mark("names.asked");
    }
  }
  return null;
}

function findWrongAnswer(store: Store, { network }: SimAgent, asker: Task): string | null {
  const names = network?.names;
  for (const { network: attached } of asker.networks) {
    const networkId = attached?.id ?? "";
    const from = addressIn(asker, networkId) ?? "";
    const networkName = attached?.spec?.annotations?.name ?? "";
    const services = [...store.all("service")].filter(({ spec }) =>
      spec?.task?.networks.some(({ target }) => target === networkId || target === networkName),
    );
    for (const { endpoint, id, spec } of services) {
      const name = spec?.annotations?.name ?? "";
      const ready = [...store.all("task")]
        .filter((task) => task.serviceId === id && isReady(task))
        .flatMap((task) => addressIn(task, networkId) ?? [])
        .toSorted();
      const virtual = (endpoint?.virtualIps ?? []).find((each) => each.networkId === networkId)?.addr.split("/")[0];
      const own = virtual === undefined || virtual === "" ? ready : [virtual];
      for (const [asked, wanted] of [
        [`${name}.${networkName}`, own],
        [`tasks.${name}`, ready],
      ] as const) {
        const told = shown(names?.ask(from, asked, "A") ?? null);
        const expected = wanted.join(" ");
        if (told !== expected) return `resolves ${asked} to '${told}', not '${expected}'`;
      }
      const led = virtual === undefined || virtual === "" ? null : (names?.leadsTo(virtual)?.join(" ") ?? "nowhere");
      if (led !== null && led !== ready.join(" "))
        return `reaches '${led}' by ${virtual} of ${name}, not '${ready.join(" ")}'`;
    }
  }
  return null;
}

function shown(reply: NameReply | Promise<NameReply> | null): string {
  if (reply === null) return "nothing: nobody listens";
  if (reply instanceof Promise) return "nothing yet";
  switch (reply.kind) {
    case "addresses":
      return reply.addresses.toSorted().join(" ");
    case "empty":
      return "";
    default:
      return reply.kind;
  }
}
