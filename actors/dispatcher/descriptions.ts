/**
 * What nodes say of themselves when they register, on its way into the log.
 *
 * D1: a description has at most `descriptionBytesMax` bytes, so it fits into a record beside all else.
 * D2: a node that describes itself differently each time is let in as fast as its budget allows.
 */
import { NodeDescription, NodeStatus_State, type Node } from "../../proto/gen/messages.ts";
import { isSameBytes } from "../../machines/same-message.ts";
import { WriteBudget } from "../../machines/write-budget.ts";
import { RpcError, Status } from "../../runtime/rpc.ts";
import type { Environment } from "../environment.ts";
import type { Registrant } from "./session.ts";

/** An engine's with its plugins has 3 to 5 kB; labels and generic resources are its operator's. */
export const descriptionBytesMax = 256 * 1_024;
/** Four at once of the largest, or some 200 as they are; and each second six as they are. */
const descriptionBudget = { bytesMax: 4 * descriptionBytesMax, bytesPerS: 32 * 1_024 };

/** Whether the log must hear of what the node says on resuming. */
export function isNews(node: Node, registrant: Registrant): boolean {
  if (node.status?.state !== NodeStatus_State.READY || node.status.addr !== registrant.addr) return true;
  return isDescribedAnew(node, registrant.description);
}

function isDescribedAnew(node: Node, description: NodeDescription | null): boolean {
  if (description === null) return false;
  return (
    node.description === null ||
    !isSameBytes(NodeDescription.encode(node.description), NodeDescription.encode(description))
  );
}

export class Descriptions {
  readonly #env: Environment;
  readonly #budget = new WriteBudget(descriptionBudget);

  constructor(env: Environment) {
    this.#env = env;
  }

  /** Throws INVALID_ARGUMENT for one that is too large (D1), UNAVAILABLE when too much comes of the node (D2). */
  admit(node: Node, description: NodeDescription | null): void {
    if (description === null || !isDescribedAnew(node, description)) return;
    const bytes = NodeDescription.encode(description).length;
    if (bytes > descriptionBytesMax) {
      const limit = `${bytes} bytes, of which ${descriptionBytesMax} are taken`;
      throw new RpcError(
        Status.INVALID_ARGUMENT,
        `the description of node ${node.id} is too large: ${limit}; remove labels or generic resources`,
      );
    }
    if (!this.#budget.take(node.id, bytes, this.#env.clock.monotonic()))
      throw new RpcError(Status.UNAVAILABLE, `node ${node.id} exceeded rate limit of changes to its description`);
  }
}
