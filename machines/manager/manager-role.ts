/**
 * Who may be a manager. A manager is a process of its own (`muster manager`), which runs no tasks: so what is promoted and
 * demoted is the node of such a process, and an engine or an agent cannot become one.
 */
import { NodeRole, type Node } from "../../proto/gen/messages.ts";

/** Engine label of the node that a manager process writes for itself; the value is `manager`. */
export const processLabel = "muster.process";

/** Whether a manager process has ever been this node. */
export function isManagersNode({ description }: Node): boolean {
  return description?.engine?.labels[processLabel] === "manager";
}

/** Whether the node is wanted as a worker: a manager process that is this node ends, and none starts. */
export function isDemoted({ spec }: Node): boolean {
  return spec !== null && spec.desiredRole === NodeRole.WORKER;
}
