/** Predicates on a node object. */
import { NodeSpec_Availability, NodeStatus_State, type Node } from "../proto/gen/messages.ts";

export function isReady(node: Node | null | undefined): boolean {
  return node?.status?.state === NodeStatus_State.READY;
}

/** The node exists and is not DOWN: what runs on it still counts. */
export function isLive(node: Node | undefined): node is Node {
  return node !== undefined && node.status?.state !== NodeStatus_State.DOWN;
}

/** Neither paused nor drained. */
export function isActive(node: Node): boolean {
  return (node.spec?.availability ?? NodeSpec_Availability.ACTIVE) === NodeSpec_Availability.ACTIVE;
}

export function isDrained(node: Node | undefined): boolean {
  return node?.spec?.availability === NodeSpec_Availability.DRAIN;
}

/** The node accepts new tasks. */
export function takesTasks(node: Node): boolean {
  return isReady(node) && isActive(node);
}
