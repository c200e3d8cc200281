/** `muster task`: ls and inspect; logs, exec, stats and signal are in their own files. */
import { isWanted } from "../machines/task.ts";
import { taskObject } from "../lib/docker-objects/index.ts";
import { ListTasksRequest_Filters, Task, type TaskState } from "../proto/gen/messages.ts";
import { command, inspectOptions, listingOptions, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import { findNode, findService, findTask, listTasks, withManager, type ManagerClient } from "./manager-client.ts";
import { inspectEach } from "./operands.ts";
import { logs } from "./service/logs.ts";
import { printListing } from "./table.ts";
import { exec } from "./task/exec.ts";
import { signal, stats } from "./task/stats.ts";
import { desiredStates, taskListing } from "./task/table.ts";

/** Parses `service=web`, `node=n1` and `desired-state=running`, which may be repeated. */
async function filtersFrom(client: ManagerClient, texts: readonly string[]): Promise<ListTasksRequest_Filters> {
  const serviceIds: string[] = [];
  const nodeIds: string[] = [];
  const wanted: TaskState[] = [];
  for (const text of texts) {
    const [key, value = ""] = text.split("=");
    const state = desiredStates.get(value.toLowerCase());
    if (key === "service") serviceIds.push((await findService(client, value)).id);
    else if (key === "node") nodeIds.push((await findNode(client, value)).id);
    else if (key === "desired-state" && state !== undefined) wanted.push(state);
    else throw new UsageError(`invalid filter "${text}": expected service=, node= or desired-state=`);
  }
  return ListTasksRequest_Filters.create({ serviceIds, nodeIds, desiredStates: wanted });
}

const ls = command({
  summary: "List tasks: the desired ones, or all including past ones with --all.",
  options: {
    ...listingOptions,
    all: { type: "boolean", short: "a", help: "Include tasks of the past" },
    filter: {
      type: "string",
      multiple: true,
      short: "f",
      value: "KEY=VALUE",
      help: "Filter: service=, node=, desired-state=; values of one key are alternatives",
    },
    "no-trunc": { type: "boolean", help: "Do not truncate IDs and errors" },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const filters = await filtersFrom(client, values.filter ?? []);
      const isEvery = values.all === true || filters.desiredStates.length > 0;
      const tasks = (await listTasks(client, filters)).filter((task) => isEvery || isWanted(task));
      printListing(shell, await taskListing(client, tasks, shell.now(), values["no-trunc"] ?? false), values);
    }),
});

const inspect = command({
  operands: "TASK [TASK...]",
  min: 1,
  summary: "Display detailed information on one or more tasks.",
  options: inspectOptions,
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const find = (operand: string): Promise<Task> => findTask(client, operand);
      await inspectEach({ shell, operands, format: values.format }, find, (task) => ({
        docker: taskObject(task),
        wire: () => Task.toJson(task),
      }));
    }),
});

export const commands: Readonly<Record<string, Command>> = { ls, inspect, logs, exec, stats, signal };
