/**
 * `muster watch KIND`: changes of objects of a kind, from now on or from an earlier version or time; each line has the version
 * from which to resume.
 */
import { FindVersionRequest, OperatorService, WatchRequest_WatchEntry } from "../proto/gen/messages.ts";
import { command, formatOf, type Command } from "./command.ts";
import { UsageError } from "../lib/user-error.ts";
import { eventLine } from "./event-lines.ts";
import { withManager, type ManagerClient } from "./manager-client.ts";
import { parseMoment } from "./moment.ts";
import { filterKeys, namesAt, selectorOf } from "./watch-filters.ts";
import { everyAction, watch as startWatch } from "./watching.ts";

const actionBits: Readonly<Record<string, number>> = { create: 1, update: 2, remove: 4 };

function maskOf(actions: readonly string[]): number {
  if (actions.length === 0) return everyAction;
  let mask = 0;
  for (const action of actions.flatMap((each) => each.split(","))) {
    const bit = Object.hasOwn(actionBits, action) ? actionBits[action] : undefined;
    if (bit === undefined)
      throw new UsageError(`invalid argument "${action}" for "--action" flag: expected create, update or remove`);
    mask |= bit;
  }
  return mask;
}

async function versionOf(client: ManagerClient, from: string, now: number): Promise<number> {
  const moment = parseMoment(from, now);
  if ("version" in moment) return moment.version;
  const request = FindVersionRequest.create({ time: moment.time });
  return (await client.call(OperatorService.methods.FindVersion, request)).version;
}

export const watch: Command = command({
  operands: "KIND [KIND...]",
  min: 1,
  summary:
    "Stream each change of the objects of a kind (node, service, task, network, secret, config, volume, cluster, extension, resource, or one that an extension registered) with its version, until interrupted.",
  options: {
    filter: {
      type: "string",
      multiple: true,
      short: "f",
      value: "KEY=VALUE",
      help: `Filters, ANDed: ${filterKeys.join(", ")}`,
    },
    action: {
      type: "string",
      multiple: true,
      value: "ACTION",
      help: "Actions to show: create, update, remove; separate several with commas",
    },
    from: {
      type: "string",
      value: "VERSION|TIME",
      help: "Start after this version, at this time, or this long ago (10m)",
    },
    old: { type: "boolean", help: "With --format json, include the object's previous state" },
    format: { type: "string", value: "FORMAT", help: "Output format; json prints one object per line" },
  },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const asJson = formatOf(values.format) === "json";
      const action = maskOf(values.action ?? []);
      const names = namesAt(client, (text) => shell.remark(text));
      const filters = await Promise.all((values.filter ?? []).map((filter) => selectorOf(filter, names)));
      const entries = operands.map((kind) =>
        WatchRequest_WatchEntry.create({ kind, action: action as never, filters }),
      );
      const from = values.from === undefined ? null : await versionOf(client, values.from, shell.now());
      const watching = startWatch(
        client,
        entries,
        ({ events, version }) => {
          for (const event of events) {
            const line = eventLine(event, {
              version: version?.index ?? 0,
              asJson,
              showsVersion: true,
              now: shell.now(),
            });
            if (line !== null) shell.print(line);
          }
        },
        { from, includesOld: values.old === true },
      );
      await watching.broken;
    }),
});
