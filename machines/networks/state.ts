/**
 * A node's view of the networks that its tasks are in: the networks, their nodes and services, and all their tasks on any
 * node. The manager sends it incrementally (muster/v1/networks.proto).
 *
 * NS1: while a complete state arrives in pieces, the previous state stays in force.
 */
import type {
  AttachedNetwork,
  NetworkNode,
  NetworkService,
  NetworksUpdate,
  NetworkTask,
} from "../../proto/gen/messages.ts";

export interface NetworksState {
  /** By id. */
  readonly networks: ReadonlyMap<string, AttachedNetwork>;
  readonly nodes: ReadonlyMap<string, NetworkNode>;
  /** By `SERVICE/NETWORK` and `TASK/NETWORK`. */
  readonly services: ReadonlyMap<string, NetworkService>;
  readonly tasks: ReadonlyMap<string, NetworkTask>;
}

/** The state that the agent's parts follow; implemented by the actor of the stream. */
export interface NodeNetworks {
  /** Null until a manager has sent a complete state. */
  readonly state: NetworksState | null;
  /** Calls the listener after each update, not at once; the result unsubscribes. Must not throw. */
  onChange(listener: (state: NetworksState) => void): () => void;
}

class OwnState implements NetworksState {
  readonly networks = new Map<string, AttachedNetwork>();
  readonly nodes = new Map<string, NetworkNode>();
  readonly services = new Map<string, NetworkService>();
  readonly tasks = new Map<string, NetworkTask>();

  /** Uses every field except `fresh` and `in_sync`. */
  apply(update: NetworksUpdate): void {
    for (const each of update.networks) this.networks.set(each.id, each);
    for (const each of update.nodes) this.nodes.set(each.id, each);
    for (const each of update.services) this.services.set(each.key, each);
    for (const each of update.tasks) this.tasks.set(each.key, each);
    for (const id of update.removedNetworks) this.networks.delete(id);
    for (const id of update.removedNodes) this.nodes.delete(id);
    for (const key of update.removedServices) this.services.delete(key);
    for (const key of update.removedTasks) this.tasks.delete(key);
  }
}

/** The agent's side of the stream. */
export class FollowedNetworks {
  #state: OwnState | null = null;
  /** A complete state that is still arriving. */
  #fresh: OwnState | null = null;
  #version = 0;

  /** The state in force; null until a complete state has arrived. */
  get state(): NetworksState | null {
    return this.#state;
  }

  /** The version of the newest update in force; 0 before the first. */
  get version(): number {
    return this.#version;
  }

  /** Whether the state in force changed. NS1 */
  take(piece: NetworksUpdate): boolean {
    if (piece.fresh) this.#fresh = new OwnState();
    const target = this.#fresh ?? this.#state;
    // An update to a state that never arrived.
    if (target === null) return false;
    target.apply(piece);
    if (!piece.inSync) return false;
    this.#state = target;
    this.#fresh = null;
    this.#version = piece.version;
    return true;
  }

  /** The stream broke: an incomplete state is dropped, the state in force stays. */
  interrupted(): void {
    this.#fresh = null;
  }
}
