/**
 * Which nodes may be managers. A manager is a separate process (`muster manager`) that runs no tasks, so promotion and
 * demotion apply to the node of such a process; an engine or an agent cannot become a manager.
 */
import { NodeRole, type Node } from "../../proto/gen/messages.ts";

/** Engine label that a manager process sets on its own node; the value is `manager`. */
export const processLabel = "muster.process";

/** Whether the node is, or ever was, that of a manager process. */
export function isManagersNode({ description }: Node): boolean {
  return description?.engine?.labels[processLabel] === "manager";
}

/** Whether the node is to be a worker: its manager process exits, and none starts. */
export function isDemoted({ spec }: Node): boolean {
  return spec !== null && spec.desiredRole === NodeRole.WORKER;
}
