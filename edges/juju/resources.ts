/**
 * What a connection's requests have left standing: watchers and pingers, by ids that only this connection knows.
 *
 * J1: an id is never used twice on a connection, and means nothing on another one.
 * J2: whatever is still there when the connection ends is stopped then.
 */
import { RequestError, unknownWatcher } from "./request-error.ts";

export interface Resource {
  /** Ends it, and answers whatever still waits for it. Called once. */
  stop(): void;
}

/** A client that opens more at a time has lost count; each costs memory here. */
export const resourcesMax = 10_000;

/** The first servers called one watcher by other names than the ones after them: the ids of either are the other's. */
const sameAs: { readonly [type: string]: string | undefined } = {
  EntityWatcher: "NotifyWatcher",
  MachineWatcher: "NotifyWatcher",
  UnitWatcher: "NotifyWatcher",
  ClientWatcher: "AllWatcher",
};

export class Resources {
  readonly #standing = new Map<string, { readonly type: string; readonly resource: Resource }>();
  #last = 0;
  #isClosed = false;

  /** The id under which clients of `type` reach it: "1", "2", … */
  add(type: string, resource: Resource): string {
    if (this.#standing.size >= resourcesMax) {
      resource.stop();
      throw new RequestError(`more than ${resourcesMax} watchers on one connection`, "quota limit exceeded");
    }
    this.#last += 1;
    const id = String(this.#last);
    // A request that was under way when the connection ended must leave nothing behind (J2).
    if (this.#isClosed) resource.stop();
    else this.#standing.set(id, { type, resource });
    return id;
  }

  /** Throws `unknown watcher id` for one that is not there, or is another type's. */
  get(type: string, id: string): Resource {
    const found = this.#standing.get(id);
    if (found === undefined || found.type !== (sameAs[type] ?? type)) throw unknownWatcher();
    return found.resource;
  }

  /** Forgets it and stops it; throws like `get`. */
  stop(type: string, id: string): void {
    const resource = this.get(type, id);
    this.#standing.delete(id);
    resource.stop();
  }

  countOf(type: string): number {
    let count = 0;
    for (const each of this.#standing.values()) if (each.type === type) count += 1;
    return count;
  }

  get count(): number {
    return this.#standing.size;
  }

  stopAll(): void {
    this.#isClosed = true;
    const standing = [...this.#standing.values()];
    this.#standing.clear();
    for (const { resource } of standing) resource.stop();
  }
}
