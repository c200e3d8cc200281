/** `/tasks`. */
import {
  ControlService,
  ListTasksRequest,
  ListTasksRequest_Filters,
  TaskState,
  type Task,
} from "../../../proto/gen/messages.ts";
import { taskObject, taskSpecObject } from "../../../lib/docker-objects/index.ts";
import { findNode, findService, findTask } from "../find.ts";
import { filtersOf, ok, writeList, type Handler } from "../request.ts";
import { partOnce, writtenOnce } from "../written.ts";
import { wordsOf } from "./nodes.ts";

const { methods } = ControlService;
const known = ["name", "id", "label", "service", "node", "desired-state", "_up-to-date", "runtime"];

/** Tasks of a service share its spec. */
const specOf = partOnce(taskSpecObject);
const shown = writtenOnce((task: Task) => taskObject(task, specOf));

/** As at a stock manager, without those that stand for engines' own containers, unless they are wanted. */
function* withoutAttachments(tasks: readonly Task[]): Iterable<Task> {
  for (const task of tasks) if (task.spec?.attachment == null) yield task;
}

export const listTasks: Handler = async (request) => {
  const { calls, signal } = request;
  const filters = filtersOf(request).accept(known);
  const serviceIds: string[] = [];
  for (const name of filters.of("service")) serviceIds.push((await findService(calls, name)).id);
  const nodeIds: string[] = [];
  for (const name of filters.of("node")) nodeIds.push((await findNode(calls, name)).id);
  const { tasks } = await calls.unary(
    methods.ListTasks,
    ListTasksRequest.create({
      // Without a filter, none of many tasks needs to be compared.
      filters: filters.isEmpty
        ? null
        : ListTasksRequest_Filters.create({
            namePrefixes: filters.of("name"),
            idPrefixes: filters.of("id"),
            labels: filters.pairs("label"),
            serviceIds,
            nodeIds,
            desiredStates: wordsOf(filters, "desired-state", TaskState),
            upToDate: filters.of("_up-to-date").length > 0,
            runtimes: filters.of("runtime"),
          }),
    }),
  );
  if (signal.aborted) return null;
  return writeList(request, filters.of("runtime").length > 0 ? tasks : withoutAttachments(tasks), shown);
};

export const inspectTask: Handler = async ({ calls, name }) => ok(shown(await findTask(calls, name)));
