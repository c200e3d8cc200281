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

export const listTasks: Handler = async (request) => {
  const { calls, signal } = request;
  const filters = filtersOf(request).accept(known);
  const serviceIds: string[] = [];
  for (const name of filters.of("service")) serviceIds.push((await findService(calls, name)).id);
  const nodeIds: string[] = [];
  for (const name of filters.of("node")) {
    nodeIds.push(name === "self" ? request.backend.nodeId : (await findNode(calls, name)).id);
  }
  const { tasks } = await calls.unary(
    methods.ListTasks,
    ListTasksRequest.create({
      filters: ListTasksRequest_Filters.create({
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
  return signal.aborted ? null : writeList(request, tasks, shown);
};

export const inspectTask: Handler = async ({ calls, name }) => ok(shown(await findTask(calls, name)));
