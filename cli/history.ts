/** `muster history KIND NAME`: what changed in an object, who requested it, and what followed. */
import { HistoryEntry, HistoryRequest, OperatorService, type HistoryResponse } from "../proto/gen/messages.ts";
import type { RpcError } from "../runtime/ports/rpc.ts";
import { command, formatOf, type Command } from "./command.ts";
import { entryLines } from "./history-lines.ts";
import { withManager } from "./manager-client.ts";
import { parsePast } from "./moment.ts";
import { UsageError, UserError } from "../lib/user-error.ts";
import { anyNumber, millisecondsOf, parseCount } from "./values.ts";

function lastOf(text: string | undefined): number {
  if (text === undefined || text === "all") return 0;
  const last = parseCount(text, "last", anyNumber);
  if (last < 1)
    throw new UsageError(`invalid argument "${text}" for "--last" flag: expected a number above 0, or 'all'`);
  return last;
}

/** The kind, from any of the words for it. */
function kindOf(word: string): string {
  return word === "swarm" ? "cluster" : word;
}

export const history: Command = command({
  operands: "KIND NAME|ID",
  min: 2,
  max: 2,
  summary:
    "Show what changed in a node, service, network, task, cluster, secret, config or volume, who changed it and what followed, oldest first and as far back as the log is retained. Works for removed objects, too.",
  options: {
    since: {
      type: "string",
      value: "TIME",
      help: "Show changes since a time or relative time (10m)",
    },
    until: { type: "string", value: "TIME", help: "Show changes until a time or relative time" },
    last: { type: "string", short: "n", value: "N", help: "Show only the newest N changes (default: all)" },
    follow: { type: "boolean", short: "f", help: "Follow: print changes as they happen" },
    format: { type: "string", value: "FORMAT", help: "Output format; json prints one object per line" },
  },
  examples: [
    { line: "muster history service web", does: "changes of a service, who made them, and what followed" },
    { line: "muster history node worker-1 --since 2h", does: "why a node was away" },
    { line: "muster history service web -n 5 -f", does: "the last five changes, then follow" },
  ],
  run: ({ values, operands, shell }) =>
    withManager(shell, async ({ channel }) => {
      const asJson = formatOf(values.format) === "json";
      const { since, until, follow = false } = values;
      const request = HistoryRequest.create({
        kind: kindOf(operands[0] as string),
        subject: operands[1] as string,
        since: since === undefined ? null : parsePast(since, shell.now(), "since"),
        until: until === undefined ? null : parsePast(until, shell.now(), "until"),
        last: lastOf(values.last),
        follow,
      });
      const ids = new Set<string>();
      let printed = 0;
      const print = ({ entries, oldestVersion, oldestTime, omitted }: HistoryResponse): void => {
        if (oldestVersion > 0 && !asJson) {
          const time = millisecondsOf(oldestTime);
          shell.remark(
            `the history begins at version ${oldestVersion}${time === null ? "" : `, written at ${new Date(time).toISOString()}`}`,
          );
        }
        if (omitted > 0 && !asJson) shell.remark(`${omitted} earlier entries omitted`);
        for (const entry of entries) {
          ids.add(entry.objectId);
          printed += 1;
          if (asJson) shell.print(JSON.stringify(HistoryEntry.toJson(entry)));
          else shell.print(entryLines(entry, { showsId: ids.size > 1 }).join("\n"));
        }
      };
      const ended = Promise.withResolvers<RpcError | null>();
      channel.serverStream(OperatorService.methods.History, request, { onMessage: print, onEnd: ended.resolve });
      const error = await ended.promise;
      if (error !== null) throw error;
      if (follow) throw new UserError("the manager ended the stream: is it shutting down?");
      if (printed === 0 && !asJson) shell.remark("no changes in this period");
    }),
});
