/** `muster events`: one line for each object that is created, updated or removed. */
import { WatchRequest_WatchEntry, type WatchActionKind, type WatchMessage_Event } from "../proto/gen/messages.ts";
import { command, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import { eventFields, eventKinds, eventLine, type EventKind } from "./event-lines.ts";
import { jsonText } from "../lib/template/template.ts";
import { filled, readFormat, type Format } from "./format.ts";
import { withManager } from "./manager-client.ts";
import { everyAction, watch } from "./watching.ts";

function wantedKinds(filters: readonly string[]): readonly EventKind[] {
  if (filters.length === 0) return eventKinds;
  return filters.map((filter) => {
    const kind = eventKinds.find((name) => filter === `type=${name}`);
    if (kind === undefined) throw new UsageError(`invalid filter "${filter}": expected type=${eventKinds.join("|")}`);
    return kind;
  });
}

function lineOf(event: WatchMessage_Event, version: number, format: Format, now: number): string | null {
  if (format.kind === "table") return eventLine(event, { version, asJson: false, showsVersion: false, now });
  const fields = eventFields(event, version, now);
  if (fields === null) return null;
  if (format.kind === "wire") return JSON.stringify(fields.wire());
  if (format.kind === "json") return jsonText(fields.shown);
  return filled(format.template, format.template.usesWire ? { ...fields.shown, object: fields.wire() } : fields.shown);
}

export const events: Command = command({
  summary: "Stream events from the cluster, one line for each change of an object, until interrupted.",
  options: {
    format: {
      type: "string",
      value: "FORMAT",
      help: "Output format: a Go template, json (one object per line) or wire (SwarmKit's own fields)",
    },
    filter: {
      type: "string",
      multiple: true,
      short: "f",
      value: "type=KIND",
      help: "Only events of this kind of object",
    },
  },
  run: ({ values, shell }) =>
    withManager(shell, async (client) => {
      const format = readFormat(values.format);
      const failure = Promise.withResolvers<never>();
      const entries = wantedKinds(values.filter ?? []).map((kind) =>
        WatchRequest_WatchEntry.create({ kind, action: everyAction as WatchActionKind }),
      );
      const watching = watch(client, entries, ({ events: batch, version }) => {
        for (const event of batch) {
          try {
            const line = lineOf(event, version?.index ?? 0, format, shell.now());
            if (line !== null) shell.print(line);
          } catch (error) {
            failure.reject(error as Error);
          }
        }
      });
      await Promise.race([watching.broken, failure.promise]);
    }),
});
