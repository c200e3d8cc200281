/** Task table with Docker's columns: the newest attempt of each slot, with earlier ones indented below it. */
import { nodeNames } from "../../machines/node-names.ts";
import { runtimeOf } from "../../machines/list-filters.ts";
import { isNodeBound, stateNames } from "../../machines/task.ts";
import {
  ExecSpec,
  PortConfig_Protocol,
  Task,
  TaskState,
  type PortConfig,
  type TaskSpec,
} from "../../proto/gen/messages.ts";
import { byAge, listNodes, type ManagerClient } from "../manager-client.ts";
import type { Listing } from "../table.ts";
import { ago } from "../values.ts";

/** Docker's length of ids in listings of tasks. */
const shortIdLength = 12;

/** Desired states that a filter accepts: like Docker, any task state, even one that is never desired. */
export const desiredStates: ReadonlyMap<string, TaskState> = new Map(
  Object.entries(TaskState).map(([name, state]) => [name.toLowerCase(), state]),
);

const protocols: { readonly [Protocol in PortConfig_Protocol]: string } = {
  [PortConfig_Protocol.TCP]: "tcp",
  [PortConfig_Protocol.UDP]: "udp",
  [PortConfig_Protocol.SCTP]: "sctp",
};

/** `Running`. */
export function stateName(state: number): string {
  const name = stateNames.get(state) ?? String(state);
  return name.charAt(0) + name.slice(1).toLowerCase();
}

/** The image; for other runtimes the kind, with the command of a process. */
export function imageOf(spec: TaskSpec | null): string {
  if (spec?.container != null) return spec.container.image.replace(/@sha256:.*$/, "");
  const kind = runtimeOf(spec);
  const payload = spec?.generic?.payload?.value;
  if (kind !== "exec" || payload === undefined) return kind;
  try {
    return `exec:${ExecSpec.decode(payload).command}`;
  } catch {
    return kind;
  }
}

/** Such as `*:8080->80/tcp`, separated by commas. */
function portsOf(ports: readonly PortConfig[]): string {
  return ports
    .map(({ publishedPort, targetPort, protocol }) => `*:${publishedPort}->${targetPort}/${protocols[protocol]}`)
    .join(", ");
}

/** `web.2`, or `web.<node>` for a global service. */
function slotName(task: Task): string {
  const service = task.serviceAnnotations?.name ?? task.serviceId;
  const own = task.annotations?.name ?? "";
  // Slot 0 of a job: the full name with its id.
  if (own !== "" && task.jobIteration === null) return own;
  return `${service}.${isNodeBound(task) ? task.nodeId : task.slot}`;
}

/** Sorts by service, slot (for a global service, node), newest first. */
function inOrder(tasks: readonly Task[]): readonly Task[] {
  return tasks.toSorted((a, b) => {
    const service = (a.serviceAnnotations?.name ?? "").localeCompare(b.serviceAnnotations?.name ?? "");
    if (service !== 0) return service;
    if (a.slot !== b.slot) return a.slot - b.slot;
    if (a.slot === 0 && a.nodeId !== b.nodeId) return a.nodeId < b.nodeId ? -1 : 1;
    return byAge(a, b);
  });
}

export async function taskListing(
  client: ManagerClient,
  tasks: readonly Task[],
  now: number,
  isWhole = false,
  areIdsShown = false,
): Promise<Listing> {
  const nameOf = nodeNames(areIdsShown ? [] : await listNodes(client));
  let previous = "";
  return {
    headings: ["ID", "NAME", "IMAGE", "NODE", "DESIRED STATE", "CURRENT STATE", "ERROR", "PORTS"],
    rows: inOrder(tasks).map((task) => {
      const slot = slotName(task);
      const name = slot === previous ? ` \\_ ${slot}` : slot;
      previous = slot;
      const { status } = task;
      const since = ago(status?.timestamp ?? null, now);
      return {
        id: task.id,
        cells: [
          isWhole ? task.id : task.id.slice(0, shortIdLength),
          name,
          imageOf(task.spec),
          nameOf(task.nodeId),
          stateName(task.desiredState),
          `${stateName(status?.state ?? TaskState.NEW)}${since === "" ? "" : ` ${since}`}`,
          status === null || status.err === "" ? "" : `"${status.err}"`,
          portsOf(status?.portStatus?.ports ?? []),
        ],
        object: () => Task.toJson(task),
        // Templates get the name without the tree's indentation.
        fields: () => ({ Name: slot }),
      };
    }),
  };
}
