/**
 * Checks for tasks that must not reach an engine. A stock dockerd dereferences these fields unchecked, and a task that crashes
 * it does so again at each start, because the engine stores a task before it starts it (worker protocol traps 4, 5 and 14,
 * §8.2).
 */
import { Node, type EncryptionKey, type Network, type NetworkAttachment, type Task } from "../../proto/gen/messages.ts";

/** Why the task must not be sent, for its status; null if it may. */
export function taskFlaw(task: Task): string | null {
  if (task.id === "") return "the task has no id";
  const { spec } = task;
  if (spec === null) return "the task has no spec";
  if (spec.generic !== null && spec.generic.payload === null) return "the generic runtime has no payload";
  // The container's name is derived from it (trap 14).
  const name = task.annotations?.name || task.serviceAnnotations?.name || "";
  if (spec.container !== null && name === "") return "neither the service nor the task has a name";
  if (spec.container === null && spec.attachment === null && spec.generic === null) return "the task has no runtime";
  for (const attachment of task.networks) {
    const flaw = attachmentFlaw(attachment);
    if (flaw !== null) return flaw;
  }
  return null;
}

function attachmentFlaw({ network }: NetworkAttachment): string | null {
  if (network === null) return "a network attachment has no network";
  return networkFlaw(network);
}

function networkFlaw(network: Network): string | null {
  const name = network.spec?.annotations?.name ?? network.id;
  if (network.spec === null) return `network ${name} has no spec`;
  if (network.driverState === null) return `network ${name} has no driver state: it is not allocated`;
  if (network.ipam !== null && network.ipam.driver === null) return `network ${name} has IPAM options without a driver`;
  return null;
}

/** The node without attachments that would crash an engine (unallocated ingress networks). */
export function sendableNode(node: Node): Node {
  const attachments = node.attachments.filter(isSendableAttachment);
  return attachments.length === node.attachments.length ? node : Node.patch(node, { attachments });
}

function isSendableAttachment({ network }: NetworkAttachment): boolean {
  if (network === null) return false;
  if (network.spec?.ingress !== true) return true;
  return network.driverState !== null && network.ipam !== null && network.ipam.driver !== null;
}

const keySubsystems = ["networking:gossip", "networking:ipsec"] as const;
/** Keys per subsystem: the previous, the current and the next one. Engines ignore or crash on any other number (trap 6). */
const keysPerSubsystem = 3;

/** The keys to send: three of each subsystem with different times, or none. */
export function sendableKeys(keys: readonly EncryptionKey[]): readonly EncryptionKey[] {
  const isWhole = keySubsystems.every(
    (subsystem) => keys.filter((key) => key.subsystem === subsystem).length === keysPerSubsystem,
  );
  const times = new Set(keys.map((key) => key.lamportTime));
  return isWhole && keys.length === keySubsystems.length * keysPerSubsystem && times.size === keys.length ? keys : [];
}
