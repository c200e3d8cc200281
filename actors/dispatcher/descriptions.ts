/**
 * Limits the descriptions that registering nodes write to the log.
 *
 * D1: a description has at most `descriptionBytesMax` bytes, so it fits into a record with everything else.
 * D2: a node whose description differs each time is admitted as fast as its budget allows.
 */
import { isReady } from "../../machines/node.ts";
import { NodeDescription, type Node } from "../../proto/gen/messages.ts";
import { isSameBytes } from "../../machines/same-message.ts";
import { WriteBudget } from "../../machines/write-budget.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Environment } from "../environment.ts";
import type { Registrant } from "./session.ts";

/** An engine's description with its plugins has 3 to 5 kB; labels and generic resources come from its operator. */
const descriptionBytesMax = 256 * 1_024;
/** A burst of four of the largest, or about 200 usual ones, and six usual ones a second. */
const descriptionBudget = { bytesMax: 4 * descriptionBytesMax, bytesPerS: 32 * 1_024 };

/** Whether the node's data on resuming must be written to the log. */
export function isNews(node: Node, registrant: Registrant): boolean {
  if (!isReady(node) || node.status?.addr !== registrant.addr) return true;
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

  /** Throws INVALID_ARGUMENT for a description that is too large (D1), UNAVAILABLE when the node exceeds its budget (D2). */
  admit(node: Node, description: NodeDescription | null): void {
    if (description === null || !isDescribedAnew(node, description)) return;
    const bytes = NodeDescription.encode(description).length;
    if (bytes > descriptionBytesMax) {
      const limit = `${bytes} bytes, limit ${descriptionBytesMax}`;
      throw new RpcError(
        Status.INVALID_ARGUMENT,
        `the description of node ${node.id} is too large: ${limit}; remove labels or generic resources`,
      );
    }
    if (!this.#budget.take(node.id, bytes, this.#env.clock.monotonic()))
      throw new RpcError(Status.UNAVAILABLE, `node ${node.id} exceeded rate limit of changes to its description`);
  }
}
