/** Shared by `ps` of services, jobs, stacks and nodes: flags, filters and table. */
import { taskName } from "../../machines/list-filters.ts";
import type { ListTasksRequest_Filters, Task } from "../../proto/gen/messages.ts";
import { listingOptions } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { findNode, listTasks, type ManagerClient } from "../manager-client.ts";
import type { Shell } from "../shell.ts";
import { printListing, type ListingOptions } from "../table.ts";
import { desiredStates, taskListing } from "./table.ts";

export const filterFlag = { type: "string", multiple: true, short: "f", value: "KEY=VALUE" } as const;

export const taskListingOptions = {
  ...listingOptions,
  filter: { ...filterFlag, help: "Filter by id=, name=, node=, label= or desired-state=" },
  "no-trunc": { type: "boolean", help: "Do not truncate IDs" },
  "no-resolve": { type: "boolean", help: "Do not map node IDs to names" },
} as const;

interface TaskListingValues extends ListingOptions {
  readonly filter?: readonly string[] | undefined;
  readonly "no-resolve"?: boolean | undefined;
}

/** `KEY=VALUE`. Throws UsageError. */
export function pairOf(text: string, flag: string): readonly [string, string] {
  const at = text.indexOf("=");
  if (at < 1) throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected KEY=VALUE`);
  return [text.slice(0, at), text.slice(at + 1)];
}

/** `key` or `key=value`. */
export function hasLabel(labels: Readonly<Record<string, string>>, text: string): boolean {
  const [label, wanted] = text.includes("=") ? pairOf(text, "filter") : [text, null];
  const held = labels[label];
  return held !== undefined && (wanted === null || held === wanted);
}

/** Docker's task filters; the manager applies the rest. */
async function tasksWanted(client: ManagerClient, texts: readonly string[]): Promise<(task: Task) => boolean> {
  const nodes = new Set<string>();
  const states = new Set<number>();
  const starts: string[] = [];
  const labels: string[] = [];
  for (const text of texts) {
    const [key, value] = pairOf(text, "filter");
    const state = desiredStates.get(value.toLowerCase());
    if (key === "node") nodes.add((await findNode(client, value)).id);
    else if (key === "desired-state" && state !== undefined) states.add(state);
    else if (key === "id" || key === "name") starts.push(value);
    else if (key === "label") labels.push(value);
    else throw new UsageError(`invalid filter "${text}": expected id=, name=, node=, label= or desired-state=`);
  }
  return (task) =>
    (nodes.size === 0 || nodes.has(task.nodeId)) &&
    (states.size === 0 || states.has(task.desiredState)) &&
    labels.every((label) => hasLabel(task.serviceAnnotations?.labels ?? {}, label)) &&
    (starts.length === 0 || starts.some((start) => task.id.startsWith(start) || taskName(task).startsWith(start)));
}

/** Prints the tasks that `find` returns and the flags select. */
export async function printTasks(
  client: ManagerClient,
  shell: Shell,
  values: TaskListingValues,
  find: () => Promise<ListTasksRequest_Filters>,
  isShown: (task: Task) => boolean = () => true,
): Promise<void> {
  const isWanted = await tasksWanted(client, values.filter ?? []);
  const found = await listTasks(client, await find());
  const tasks = found.filter((task) => isWanted(task) && isShown(task));
  const listing = await taskListing(client, tasks, shell.now(), values["no-trunc"], values["no-resolve"]);
  printListing(shell, listing, values);
}
