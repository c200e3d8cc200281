/** `muster events`: one line for each object that is made, changed or removed. */
import { taskName } from "../machines/list-filters.ts";
import {
  NodeStatus_State,
  Object as Watched,
  WatchActionKind,
  WatchRequest_WatchEntry,
  type Task,
  type WatchMessage_Event,
} from "../proto/gen/messages.ts";
import { command, formatOf, UsageError, type Command } from "./command.ts";
import { withManager } from "./manager-client.ts";
import { stateName } from "./task-table.ts";
import { millisecondsOf } from "./values.ts";
import { everyAction, watch } from "./watching.ts";

const kinds = ["node", "service", "task", "network", "secret", "config", "volume", "cluster"] as const;
type WatchedKind = (typeof kinds)[number];

const actions: { readonly [Action in WatchActionKind]: string } = {
  [WatchActionKind.WATCH_ACTION_UNKNOWN]: "unknown",
  [WatchActionKind.WATCH_ACTION_CREATE]: "create",
  [WatchActionKind.WATCH_ACTION_UPDATE]: "update",
  [WatchActionKind.WATCH_ACTION_REMOVE]: "remove",
};

function describeTask(task: Task): string {
  const where = task.nodeId === "" ? "" : ` on ${task.nodeId}`;
  const error = task.status?.err ? ` "${task.status.err}"` : "";
  return `${taskName(task)} ${stateName(task.status?.state ?? 0)} (desired ${stateName(task.desiredState)})${where}${error}`;
}

function describe(kind: WatchedKind, object: Watched): string {
  switch (kind) {
    case "task":
      return object.task === null ? "" : describeTask(object.task);
    case "node": {
      const state = object.node?.status?.state ?? NodeStatus_State.UNKNOWN;
      const name = Object.entries(NodeStatus_State).find(([, value]) => value === state)?.[0] ?? "";
      return `${object.node?.description?.hostname ?? ""} ${name.toLowerCase()}`.trim();
    }
    case "service":
    case "network":
    case "secret":
    case "config":
    case "volume":
    case "cluster":
      return object[kind]?.spec?.annotations?.name ?? "";
  }
}

function wantedKinds(filters: readonly string[]): readonly WatchedKind[] {
  if (filters.length === 0) return kinds;
  return filters.map((filter) => {
    const kind = kinds.find((name) => filter === `type=${name}`);
    if (kind === undefined) throw new UsageError(`--filter takes type=${kinds.join("|")}, not '${filter}'`);
    return kind;
  });
}

function kindOf(object: Watched): WatchedKind | null {
  return kinds.find((kind) => object[kind] !== null) ?? null;
}

export const events: Command = command({
  summary: "Prints what happens in the cluster, one line for each change of an object, until it is interrupted.",
  options: { format: { type: "string" }, filter: { type: "string", multiple: true, short: "f" } },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const asJson = formatOf(values.format) === "json";
      const entries = wantedKinds(values.filter ?? []).map((kind) =>
        WatchRequest_WatchEntry.create({ kind, action: everyAction as WatchActionKind }),
      );
      const show = (event: WatchMessage_Event, version: number): void => {
        const { object } = event;
        const kind = object === null ? null : kindOf(object);
        if (object === null || kind === null) return;
        const action = actions[event.action];
        const updated = millisecondsOf(object[kind]?.meta?.updatedAt ?? null);
        // A removed object says when it was last changed, not when it went.
        const time = new Date(action === "remove" || updated === null ? shell.now() : updated).toISOString();
        const id = object[kind]?.id ?? "";
        shell.print(
          asJson
            ? JSON.stringify({ time, version, kind, action, id, object: Watched.toJson(object)[kind] })
            : `${time} ${kind} ${action} ${id} ${describe(kind, object)}`.trimEnd(),
        );
      };
      const watching = watch(client, entries, ({ events: told, version }) => {
        for (const event of told) show(event, version?.index ?? 0);
      });
      await watching.broken;
    }),
});
