/**
 * Watchers and pingers of a connection, by ids that are valid on this connection only.
 *
 * J1: an id is never used twice on a connection, and is invalid on other connections.
 * J2: the end of the connection stops everything that is left.
 */
import { RequestError, unknownWatcher } from "./request-error.ts";

export interface Resource {
  /** Ends it and answers its waiting requests. Called once. */
  stop(): void;
}

/** Maximum number per connection; each uses memory here. */
export const resourcesMax = 10_000;

/** Older clients know some watchers under other types; an id is valid for both. */
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

  /** Returns the id for clients of `type`: "1", "2", … */
  add(type: string, resource: Resource): string {
    if (this.#standing.size >= resourcesMax) {
      resource.stop();
      throw new RequestError(`more than ${resourcesMax} watchers on one connection`, "quota limit exceeded");
    }
    this.#last += 1;
    const id = String(this.#last);
    // A request in progress when the connection ended must leave nothing behind (J2).
    if (this.#isClosed) resource.stop();
    else this.#standing.set(id, { type, resource });
    return id;
  }

  /** Throws `unknown watcher id` if it does not exist or has another type. */
  get(type: string, id: string): Resource {
    const found = this.#standing.get(id);
    if (found === undefined || found.type !== (sameAs[type] ?? type)) throw unknownWatcher();
    return found.resource;
  }

  /** Removes and stops it; throws like `get`. */
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
