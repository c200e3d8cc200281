/**
 * Keeps the input of `machines/dispatcher/registration-rate.ts`: how often each node registers, and evictions between holders
 * of one identity.
 */
import {
  duplicateWindowMs,
  evicted,
  isDuplicate,
  isStale,
  noHistory,
  registered,
  type RegistrationHistory,
} from "../../machines/dispatcher/registration-rate.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Environment } from "../environment.ts";

export class RegistrationHistories {
  readonly #env: Environment;
  readonly #byNode = new Map<string, RegistrationHistory>();
  #prunedAt = 0;

  constructor(env: Environment) {
    this.#env = env;
  }

  /** Counts a new registration. Throws UNAVAILABLE when the node registers too often. */
  admit(nodeId: string, { address, hasSession }: { address: string; hasSession: boolean }): void {
    const at = this.#env.clock.monotonic();
    this.#prune(at);
    const outcome = registered(this.#byNode.get(nodeId) ?? noHistory, { at, hasSession, address });
    if (outcome.kind === "limited") {
      throw new RpcError(Status.UNAVAILABLE, `node ${nodeId} exceeded rate limit count of registrations`);
    }
    this.#byNode.set(nodeId, outcome.history);
  }

  /** A connected session of the node was replaced by another holder of its identity. */
  noteEviction(nodeId: string): void {
    const at = this.#env.clock.monotonic();
    const history = evicted(this.#byNode.get(nodeId) ?? noHistory, at);
    this.#byNode.set(nodeId, history);
    if (!isDuplicate(history, at)) return;
    const { log, metrics } = this.#env.telemetry;
    metrics
      .counter(
        "muster_duplicate_identities_total",
        "Evictions of a live session by another holder of the same identity.",
      )
      .add();
    log.warn(
      { node: nodeId, addresses: history.addresses },
      "two live machines seem to hold one node identity: each evicts the other",
    );
  }

  /** Warnings about the node for an operator. */
  remarks(nodeId: string): readonly string[] {
    const history = this.#byNode.get(nodeId);
    if (history === undefined || !isDuplicate(history, this.#env.clock.monotonic())) return [];
    const from = history.addresses.join(" and ");
    return [
      `two live machines seem to hold this identity (registrations came from ${from}): remove one, and let it join as a new node`,
    ];
  }

  /** Drops histories that no longer affect decisions, now and then. */
  #prune(at: number): void {
    if (at - this.#prunedAt < duplicateWindowMs) return;
    this.#prunedAt = at;
    for (const [nodeId, history] of this.#byNode) if (isStale(history, at)) this.#byNode.delete(nodeId);
  }
}
