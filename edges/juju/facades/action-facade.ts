/** Action: runs commands in units and reports on them (reference §7.1). Charm actions do not exist. */
import { actionName, type ActionStatus } from "../entities/views.ts";
import { unitTag } from "../entities/names.ts";
import { refusal } from "../feed/news.ts";
import type { Facade, FacadeSources } from "../facade.ts";
import { RequestError } from "../request-error.ts";
import { verbatim, type Json } from "../results.ts";
import { bulk, type JsonFields } from "./bulk.ts";
import { viewOf, type ActionTask, type Operation, type Operations } from "./operations.ts";
import { refusing } from "./parts.ts";
import { applicationOfTag, invalidTag } from "./subjects.ts";
import { addWatcher } from "./watchers.ts";

const decoder = new TextDecoder();
/** Juju's default page size for operations. */
const operationsLimit = 50;

function times(from: { readonly enqueued: string; readonly started: string; readonly completed: string }): JsonFields {
  const { enqueued, started, completed } = from;
  return { enqueued, ...(started === "" ? {} : { started }), ...(completed === "" ? {} : { completed }) };
}

function resultOf(task: ActionTask): JsonFields {
  const { id, unit, commands, ran } = task;
  const view = viewOf(task);
  return {
    action: {
      tag: `action-${id}`,
      receiver: unitTag(unit),
      name: actionName,
      parameters: verbatim({ command: commands }),
    },
    ...times(view),
    status: view.status,
    message: view.message,
    ...(ran === null || ran.error !== null
      ? {}
      : {
          output: verbatim({
            "return-code": ran.code,
            stdout: decoder.decode(ran.stdout),
            stderr: decoder.decode(ran.stderr),
          }),
        }),
  };
}

function enqueued({ tasks, refused }: Operation): Json[] {
  return [
    ...tasks.map(resultOf),
    ...refused.map(({ error: { message, code } }): JsonFields => ({ error: { message, code } })),
  ];
}

/** In order of precedence: the first status that one of its tasks has is the operation's. */
const order: readonly ActionStatus[] = ["running", "pending", "failed", "cancelled", "completed"];

function statusOf({ tasks }: Operation): ActionStatus {
  return order.find((status) => tasks.some((task) => task.status === status)) ?? "failed";
}

function operationOf(operation: Operation): JsonFields {
  const views = operation.tasks.map(viewOf);
  const isOver = views.every(({ completed }) => completed !== "");
  const latest =
    views
      .map(({ completed }) => completed)
      .toSorted()
      .at(-1) ?? "";
  return {
    operation: `operation-${operation.id}`,
    summary: `${actionName} run on ${views.map(({ receiver }) => receiver).join(",")}`,
    ...times({
      enqueued: views[0]?.enqueued ?? "",
      started: views[0]?.started ?? "",
      completed: isOver ? latest : "",
    }),
    status: statusOf(operation),
    actions: enqueued(operation),
  };
}

function idOfTag(tag: string, noun: "action" | "operation"): string {
  const match = new RegExp(`^${noun}-(\\d{1,15})$`).exec(tag);
  if (match === null) throw invalidTag(tag, noun);
  return match[1] as string;
}

/** Commands report no progress: a watcher of it waits until it is stopped. */
const noProgress = {
  has: () => false,
  take: (): Json => ({ changes: [] }),
  wait: () => ({ unsubscribe: () => undefined }),
  release: () => undefined,
  refusal,
};

export function actionFacades(sources: FacadeSources, operations: Operations): readonly Facade[] {
  const noCharms = "charm actions are not supported: use Run to run commands";
  return [
    {
      type: "Action",
      versions: [2, 7],
      shape: "V1",
      who: "users",
      scope: "model",
      id: "none",
      methods: {
        Run: {
          needs: "operator",
          run(call) {
            const operation = operations.run(call);
            const results = enqueued(operation);
            return call.version === 2 ? { results } : { operation: `operation-${operation.id}`, actions: results };
          },
        },
        Actions: {
          needs: "operator",
          run: ({ params }) =>
            bulk(params.objects("entities"), (entity) =>
              resultOf(operations.task(idOfTag(entity.text("tag"), "action"))),
            ),
        },
        Cancel: {
          needs: "operator",
          run: ({ params }) =>
            bulk(params.objects("entities"), (entity) => {
              const task = operations.task(idOfTag(entity.text("tag"), "action"));
              operations.cancel(task);
              return resultOf(task);
            }),
        },
        Operations: {
          needs: "operator",
          run: ({ params }) =>
            bulk(params.objects("entities"), (entity) =>
              operationOf(operations.operation(idOfTag(entity.text("tag"), "operation"))),
            ),
        },
        ListOperations: {
          needs: "operator",
          run({ params }) {
            const [applications, units, names, statuses] = (
              ["applications", "units", "actions", "status"] as const
            ).map((key) => new Set(params.texts(key))) as [Set<string>, Set<string>, Set<string>, Set<string>];
            const offset = params.integer("offset") ?? 0;
            const limit = params.integer("limit") || operationsLimit;
            if (offset < 0 || limit < 0) throw new RequestError("offset and limit must not be negative", "not valid");
            const isMeant = (operation: Operation): boolean =>
              (names.size === 0 || names.has(actionName)) &&
              (statuses.size === 0 || statuses.has(statusOf(operation))) &&
              ((applications.size === 0 && units.size === 0) ||
                operation.tasks.some(({ unit }) => units.has(unit) || applications.has(unit.split("/", 1)[0] ?? "")));
            const found = [...operations.all()].filter(isMeant);
            const page = found.slice(offset, offset + limit);
            return { results: page.map(operationOf), truncated: offset + page.length < found.length };
          },
        },
        WatchActionsProgress: {
          needs: "operator",
          run: (call) =>
            bulk(call.params.objects("entities"), (entity) => {
              operations.task(idOfTag(entity.text("tag"), "action"));
              return { "watcher-id": addWatcher(sources, call, "StringsWatcher", noProgress), changes: [] };
            }),
        },
        ApplicationsCharmsActions: {
          needs: "read-only",
          run: ({ params }) =>
            bulk(params.objects("entities"), (entity) => {
              const tag = entity.text("tag");
              applicationOfTag(tag);
              return { "application-tag": tag, actions: {} };
            }),
        },
        ...refusing({
          Enqueue: noCharms,
          EnqueueOperation: noCharms,
          RunOnAllMachines: "commands cannot be run on machines",
        }),
      },
    },
  ];
}
