/** Names of the nodes, services and tasks whose ids are in the ids of actors. */
import { taskName } from "../../machines/list-filters.ts";
import { ListTasksRequest_Filters, type Node, type Task } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { byAge, listServices, listTasks, nodeName, serviceName, type ManagerClient } from "../manager-client.ts";

/** Tasks whose names are looked up for a listing: enough for a screen, and quick to ask. The rest are listed without a name. */
const taskNamesMax = 500;

export interface Names {
  /** Ids of the objects with this name. A later group counts only if no actor has an id of an earlier one. */
  idsOf(name: string): Promise<readonly (readonly string[])[]>;
  /** Name of the object in an actor's id; empty if it has none, or the name is not known. */
  nameOf(actor: string): string;
  /** Every name that is known. */
  all(): readonly string[];
}

/** Ids of objects in the id of an actor. */
export const segmentsOf = (actor: string): readonly string[] => actor.split("/").slice(1);

/** A role that may not list these objects sees ids instead of names. */
export async function permitted<Item>(listing: Promise<readonly Item[]>): Promise<readonly Item[]> {
  try {
    return await listing;
  } catch (error) {
    if (error instanceof RpcError && error.code === Status.PERMISSION_DENIED) return [];
    throw error;
  }
}

/** `web.2` or `web.NODE`, without the id of the task. */
function slotName(task: Task): string {
  const name = taskName(task);
  return name.endsWith(`.${task.id}`) ? name.slice(0, -task.id.length - 1) : name;
}

/** `actors`: ids of the actors that are named. */
export async function namesFor(
  client: ManagerClient,
  nodes: readonly Node[],
  actors: readonly string[],
): Promise<Names> {
  const services = await permitted(listServices(client));
  const known = new Map<string, string>();
  for (const node of nodes) if (nodeName(node) !== "") known.set(node.id, nodeName(node));
  for (const service of services) known.set(service.id, serviceName(service));
  const others = actors.filter((id) => /^[a-z-]*(?:task|health)/.test(id)).flatMap(segmentsOf);
  const idPrefixes = [...new Set(others)].filter((id) => !known.has(id)).slice(0, taskNamesMax);
  if (idPrefixes.length > 0)
    for (const task of await permitted(listTasks(client, ListTasksRequest_Filters.create({ idPrefixes }))))
      known.set(task.id, slotName(task));

  return {
    async idsOf(name) {
      const found = [...known].filter(([, each]) => each === name).map(([id]) => id);
      const namePrefixes = [`${name}.`];
      const tasks = name.includes(".")
        ? await permitted(listTasks(client, ListTasksRequest_Filters.create({ namePrefixes })))
        : [];
      // The newest task of a slot before those that it replaced.
      const inSlot = tasks.filter((task) => slotName(task) === name).toSorted(byAge);
      return [...(found.length === 0 || inSlot.length > 0 ? [] : [found]), ...inSlot.map(({ id }) => [id])];
    },
    nameOf(actor) {
      const named = segmentsOf(actor).map((id) => known.get(id) ?? "");
      return named.filter((name) => name !== "").join(" ");
    },
    all: () => [...new Set(known.values())],
  };
}
