/**
 * Tracks how long the leader has waited for nodes that never register, and removes them (`machines/certificates/unclaimed.ts`).
 */
import {
  hasRegistered,
  isUnclaimed,
  unclaimedBatchMax,
  unclaimedTimes,
} from "../../machines/certificates/unclaimed.ts";
import { ProposeRequest_Mode, type Node, type Operation } from "../../proto/gen/messages.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import { proposeTimeoutMs, removal, restingOn } from "../control/write.ts";
import type { Environment, Running } from "../environment.ts";

/** When the leader began to wait for each unclaimed node. */
export class UnclaimedNodes implements Running {
  readonly #env: Pick<Environment, "clock" | "store">;
  /** By node id, on the monotonic clock. U2 */
  readonly #since = new Map<string, number>();
  readonly #watching: { unsubscribe(): void };

  constructor(env: Pick<Environment, "clock" | "store">) {
    this.#env = env;
    for (const node of env.store.all("node")) this.#look(node);
    this.#watching = env.store.watch(({ changes }) => {
      for (const change of changes) {
        if (change.table !== "node") continue;
        if (change.action === "remove") this.#since.delete(change.object.id);
        else this.#look(change.object);
      }
    });
  }

  /** Time waited in milliseconds; null for a node that has registered. */
  waitedMs(nodeId: string): number | null {
    const since = this.#since.get(nodeId);
    return since === undefined ? null : this.#env.clock.monotonic() - since;
  }

  /** Unclaimed nodes waited for at least this long. */
  *waitedFor(leastMs: number): Iterable<Node> {
    const { store } = this.#env;
    for (const id of this.#since.keys()) {
      const node = store.get("node", id);
      const isManager = store.get("manager", id) !== undefined;
      if (node !== undefined && isUnclaimed(node, isManager) && (this.waitedMs(id) ?? 0) >= leastMs) yield node;
    }
  }

  stop(): void {
    this.#watching.unsubscribe();
  }

  #look(node: Node): void {
    if (hasRegistered(node)) this.#since.delete(node.id);
    else if (!this.#since.has(node.id)) this.#since.set(node.id, this.#env.clock.monotonic());
  }
}

/** Removes nodes that were unclaimed for too long, while this manager leads. */
export function startUnclaimedRemoval(env: Environment): Running {
  const { clock, proposer, telemetry } = env;
  const unclaimed = new UnclaimedNodes(env);
  let timer: TimerHandle | null = null;
  let stopped = false;

  async function removeSome(): Promise<void> {
    const operations: Operation[] = [];
    for (const node of unclaimed.waitedFor(unclaimedTimes.keptMsMax)) {
      // A node that registers concurrently stays.
      operations.push(restingOn(removal("node", node.id), "node", node));
      if (operations.length === unclaimedBatchMax) break;
    }
    if (operations.length === 0) return;
    const outcome = await proposer.propose({
      operations,
      mode: ProposeRequest_Mode.EACH,
      timeoutMs: proposeTimeoutMs,
    });
    if (outcome.kind === "committed")
      telemetry.log.info(
        { nodes: operations.length - outcome.skipped },
        "removed nodes that requested a certificate and never registered",
      );
    else telemetry.log.warn({ error: outcome.message }, "cannot remove nodes that never registered yet");
  }

  function wait(): void {
    timer = clock.setTimeout(() => {
      void removeSome().finally(() => {
        if (!stopped) wait();
      });
    }, unclaimedTimes.lookMs);
  }

  wait();
  return {
    stop() {
      stopped = true;
      if (timer !== null) clock.clearTimeout(timer);
      unclaimed.stop();
    },
  };
}
