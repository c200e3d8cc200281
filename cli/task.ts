/** `muster task`: ls, inspect. */
import { ListTasksRequest_Filters, Task, TaskState } from "../proto/gen/messages.ts";
import { command, listingOptions, UsageError, type Command } from "./command.ts";
import { findNode, findService, findTask, listTasks, withManager, type ManagerClient } from "./manager-client.ts";
import { printListing, printObjects } from "./table.ts";
import { desiredStates, taskListing } from "./task-table.ts";

/** `service=web`, `node=n1`, `desired-state=running`, each as often as wanted. */
async function filtersFrom(client: ManagerClient, texts: readonly string[]): Promise<ListTasksRequest_Filters> {
  const serviceIds: string[] = [];
  const nodeIds: string[] = [];
  const wanted: TaskState[] = [];
  for (const text of texts) {
    const [key, value = ""] = text.split("=");
    if (key === "service") serviceIds.push((await findService(client, value)).id);
    else if (key === "node") nodeIds.push((await findNode(client, value)).id);
    else if (key === "desired-state" && desiredStates[value] !== undefined) wanted.push(desiredStates[value]);
    else throw new UsageError(`--filter takes service=, node= or desired-state=, not '${text}'`);
  }
  return ListTasksRequest_Filters.create({ serviceIds, nodeIds, desiredStates: wanted });
}

const ls = command({
  summary: "Lists tasks: those that are wanted, or with --all also those of the past.",
  options: {
    ...listingOptions,
    all: { type: "boolean", short: "a" },
    filter: { type: "string", multiple: true, short: "f" },
    "no-trunc": { type: "boolean" },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const filters = await filtersFrom(client, values.filter ?? []);
      const isEvery = values.all === true || filters.desiredStates.length > 0;
      const tasks = (await listTasks(client, filters)).filter(
        ({ desiredState }) => isEvery || desiredState <= TaskState.COMPLETE,
      );
      printListing(shell, await taskListing(client, tasks, shell.now(), values["no-trunc"] ?? false), values);
    }),
});

const inspect = command({
  operands: "TASK [TASK...]",
  min: 1,
  summary: "Shows everything that the cluster knows about tasks.",
  options: { format: { type: "string" } },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const tasks: Task[] = [];
      for (const operand of operands) tasks.push(await findTask(client, operand));
      printObjects(
        shell,
        tasks.map((task) => Task.toJson(task)),
        values.format,
      );
    }),
});

export const commands: Readonly<Record<string, Command>> = { ls, inspect };
