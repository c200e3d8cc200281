/** `muster events`: one line for each object that is made, changed or removed. */
import { WatchRequest_WatchEntry, type WatchActionKind } from "../proto/gen/messages.ts";
import { command, formatOf, plainFormat, UsageError, type Command } from "./command.ts";
import { eventKinds, eventLine, type EventKind } from "./event-lines.ts";
import { withManager } from "./manager-client.ts";
import { everyAction, watch } from "./watching.ts";

function wantedKinds(filters: readonly string[]): readonly EventKind[] {
  if (filters.length === 0) return eventKinds;
  return filters.map((filter) => {
    const kind = eventKinds.find((name) => filter === `type=${name}`);
    if (kind === undefined) throw new UsageError(`--filter takes type=${eventKinds.join("|")}, not '${filter}'`);
    return kind;
  });
}

export const events: Command = command({
  summary: "Prints what happens in the cluster, one line for each change of an object, until it is interrupted.",
  options: {
    format: plainFormat,
    filter: { type: "string", multiple: true, short: "f", value: "type=KIND", help: "only objects of this kind" },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const asJson = formatOf(values.format) === "json";
      const entries = wantedKinds(values.filter ?? []).map((kind) =>
        WatchRequest_WatchEntry.create({ kind, action: everyAction as WatchActionKind }),
      );
      const watching = watch(client, entries, ({ events: told, version }) => {
        for (const event of told) {
          const place = { version: version?.index ?? 0, asJson, showsVersion: false, now: shell.now() };
          const line = eventLine(event, place);
          if (line !== null) shell.print(line);
        }
      });
      await watching.broken;
    }),
});
