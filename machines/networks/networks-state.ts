/**
 * What a node knows of the networks that its tasks are in: those, the nodes and services in them, and all tasks in them wherever
 * they are. The manager tells it in steps (muster/v1/networks.proto).
 *
 * NS1: while a whole state comes in, in pieces, what was known stays in force.
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

/** What an agent's parts follow: the actor of the stream is one. */
export interface NodeNetworks {
  /** Null until a manager has told it whole. */
  readonly state: NetworksState | null;
  /** Called after each step, and not at once; the result ends that. Must not throw. */
  onChange(listener: (state: NetworksState) => void): () => void;
}

class OwnState implements NetworksState {
  readonly networks = new Map<string, AttachedNetwork>();
  readonly nodes = new Map<string, NetworkNode>();
  readonly services = new Map<string, NetworkService>();
  readonly tasks = new Map<string, NetworkTask>();

  /** Looks at everything but `fresh` and `in_sync`. */
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

/** An agent's side of the stream. */
export class FollowedNetworks {
  #state: OwnState | null = null;
  /** Begun, and not whole. */
  #fresh: OwnState | null = null;
  #version = 0;

  /** What is in force; null until a whole state was there. */
  get state(): NetworksState | null {
    return this.#state;
  }

  /** Of the newest update in force; 0 before the first. */
  get version(): number {
    return this.#version;
  }

  /** Whether what is in force has changed. NS1 */
  take(piece: NetworksUpdate): boolean {
    if (piece.fresh) this.#fresh = new OwnState();
    const target = this.#fresh ?? this.#state;
    // A step from a state that never began.
    if (target === null) return false;
    target.apply(piece);
    if (!piece.inSync) return false;
    this.#state = target;
    this.#fresh = null;
    this.#version = piece.version;
    return true;
  }

  /** The stream broke: what was on its way is nothing, what is in force stays. */
  interrupted(): void {
    this.#fresh = null;
  }
}
