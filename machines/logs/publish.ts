/** Checks of what a node publishes of its tasks' output (worker protocol §4.9). */
import { LogMessage, SubscribeLogsMessage } from "../../proto/gen/messages.ts";
import { LineCursor, type LogLines, type PublishedLines } from "../../proto/log-lines.ts";

/** Marks messages of Muster itself, as opposed to a task's output. */
export const noticeAttribute = "muster.notice";

type PublishVerdict =
  | { readonly kind: "accepted" }
  | { readonly kind: "invalid"; readonly message: string }
  | { readonly kind: "unknown"; readonly message: string }
  | { readonly kind: "foreign"; readonly message: string };

/**
 * `subscriptionId`: of the stream's first message, null before it. `isKnown`: whether a subscription with that id is active.
 */
export function checkPublish(
  { nodeIds, subscriptionId }: PublishedLines,
  stream: { readonly nodeId: string; readonly subscriptionId: string | null },
  isKnown: (subscriptionId: string) => boolean,
): PublishVerdict {
  if (subscriptionId === "") return { kind: "invalid", message: "missing subscription ID" };
  if (stream.subscriptionId !== null && subscriptionId !== stream.subscriptionId) {
    return { kind: "invalid", message: "different subscription IDs in the same session" };
  }
  if (!isKnown(subscriptionId)) return { kind: "unknown", message: "unknown subscription ID" };
  if (nodeIds.some((nodeId) => nodeId !== stream.nodeId))
    return { kind: "foreign", message: "log message for a different node" };
  return { kind: "accepted" };
}

/** Upper bound of a message's encoded size without its data: context, time and field headers. */
const messageOverheadBytes = 256;

/** The same lines in parts of at most `bytesMax`, split between lines; a line larger than that is itself split. */
export function linesWithin(lines: LogLines, bytesMax: number): readonly LogLines[] {
  if (lines.length <= bytesMax) return [lines];
  const parts: LogLines[] = [];
  const cursor = new LineCursor(lines);
  let from = 0;
  let to = 0;
  const cut = (): void => {
    if (to > from) parts.push(lines.subarray(from, to));
  };
  while (cursor.next()) {
    if (cursor.end - from > bytesMax) {
      cut();
      from = cursor.start;
    }
    to = cursor.end;
    if (cursor.end - cursor.start <= bytesMax) continue;
    const line = LogMessage.decode(lines.subarray(cursor.bodyStart, cursor.end));
    for (const piece of logPieces(line, bytesMax)) {
      parts.push(SubscribeLogsMessage.encode(SubscribeLogsMessage.create({ messages: [piece] })));
    }
    from = to;
  }
  cut();
  return parts;
}

/** The parts of a line that is too long; the first part gets its attributes if they fit. */
function logPieces(message: LogMessage, bytesMax: number): readonly LogMessage[] {
  const attributes = LogMessage.encode(LogMessage.create({ attrs: message.attrs })).length;
  const attrs = attributes > bytesMax / 2 ? [] : message.attrs;
  const step = bytesMax - messageOverheadBytes - (attrs.length === 0 ? 0 : attributes);
  const pieces: LogMessage[] = [];
  for (let at = 0; at === 0 || at < message.data.length; at += step) {
    const data = message.data.subarray(at, at + step);
    pieces.push(LogMessage.patch(message, { data, attrs: at === 0 ? attrs : [] }));
  }
  return pieces;
}
