/** The checks on what a node publishes of its tasks' output (worker protocol §4.9). */
import type { PublishLogsMessage } from "../proto/gen/messages.ts";

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
