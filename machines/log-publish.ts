/** The checks on what a node publishes of its tasks' output (worker protocol §4.9). */
import { LogMessage, type PublishLogsMessage } from "../proto/gen/messages.ts";

export type PublishVerdict =
  | { readonly kind: "accepted" }
  | { readonly kind: "invalid"; readonly message: string }
  | { readonly kind: "unknown"; readonly message: string }
  | { readonly kind: "foreign"; readonly message: string };

/** `subscriptionId`: of the stream's first message, null before it. `isKnown`: whether a subscription of that id is active. */
export function checkPublish(
  message: PublishLogsMessage,
  stream: { readonly nodeId: string; readonly subscriptionId: string | null },
  isKnown: (subscriptionId: string) => boolean,
): PublishVerdict {
  const { subscriptionId } = message;
  if (subscriptionId === "") return { kind: "invalid", message: "missing subscription ID" };
  if (stream.subscriptionId !== null && subscriptionId !== stream.subscriptionId) {
    return { kind: "invalid", message: "different subscription IDs in the same session" };
  }
  if (!isKnown(subscriptionId)) return { kind: "unknown", message: "unknown subscription ID" };
  if (message.messages.some(({ context }) => context?.nodeId !== stream.nodeId)) {
    return { kind: "foreign", message: "log message for a different node" };
  }
  return { kind: "accepted" };
}

/** About what a message takes on the wire beside its data: context, time and field headers. */
const messageOverheadBytes = 128;

export function logMessageBytes({ attrs, data }: LogMessage): number {
  let bytes = data.length + messageOverheadBytes;
  for (const { key, value } of attrs) bytes += key.length + value.length + 8;
  return bytes;
}

/** A message that no batch could hold, as several; its attributes go with the first. */
export function logPieces(message: LogMessage, bytesMax: number): readonly LogMessage[] {
  if (logMessageBytes(message) <= bytesMax) return [message];
  const step = bytesMax - messageOverheadBytes;
  const attrs = logMessageBytes(LogMessage.patch(message, { data: new Uint8Array() })) > step ? [] : message.attrs;
  const pieces: LogMessage[] = [];
  for (let at = 0; at === 0 || at < message.data.length; at += step) {
    const data = message.data.subarray(at, at + step);
    pieces.push(LogMessage.patch(message, { data, attrs: at === 0 ? attrs : [] }));
  }
  return pieces;
}
