/**
 * The sets that followed nodes use, and their members. A set exists while a view uses it. Members are counted, because two
 * items may have the same address, and are updated incrementally.
 */
import type { SetDefinition } from "./compile.ts";
import { membersOf } from "./endpoint.ts";
import type { Chosen } from "./facts.ts";
import { SelectorIndex } from "./selector-index.ts";

/** A user of a set, notified of added and removed members. */
export interface SetUser {
  memberChanged(setId: string, member: string, isMember: boolean): void;
}

interface HeldSet {
  readonly definition: SetDefinition;
  /** Number of items with each member. */
  readonly members: Map<string, number>;
  readonly users: Set<SetUser>;
}

/** The items of one kind that selectors of sets choose from, by id. */
class Population {
  readonly #things = new Map<string, Chosen>();
  readonly #index = new SelectorIndex((setId, id, matches) => {
    // While the item itself changes, `set` compares its matches afterwards.
    if (this.#changing === id) return;
    const thing = this.#things.get(id);
    if (thing !== undefined) this.#onMatch(setId, thing, matches);
  });
  #changing: string | null = null;
  readonly #onMatch: (setId: string, thing: Chosen, matches: boolean) => void;

  constructor(onMatch: (setId: string, thing: Chosen, matches: boolean) => void) {
    this.#onMatch = onMatch;
  }

  get asked(): number {
    return this.#index.asked;
  }

  set(id: string, thing: Chosen | null): void {
    const before = this.#things.get(id);
    const matchedBefore = [...this.#index.matchedBy(id)];
    this.#changing = id;
    if (thing === null) {
      this.#things.delete(id);
      this.#index.removeItem(id);
    } else {
      this.#things.set(id, thing);
      this.#index.setItem(id, thing.labels);
    }
    this.#changing = null;
    // Add before removing, so that a member that stays is never missing in between.
    if (thing !== null) for (const setId of this.#index.matchedBy(id)) this.#onMatch(setId, thing, true);
    if (before !== undefined) for (const setId of matchedBefore) this.#onMatch(setId, before, false);
  }

  addSet({ id, selector }: SetDefinition): void {
    this.#index.addSelector(id, selector);
  }

  removeSet(id: string): void {
    this.#index.removeSelector(id);
  }
}

export class SetTable {
  readonly #sets = new Map<string, HeldSet>();
  readonly #endpoints = new Population((id, thing, matches) => this.#count(id, thing, matches));
  readonly #services = new Population((id, thing, matches) => this.#count(id, thing, matches));

  get size(): number {
    return this.#sets.size;
  }

  get asked(): number {
    return this.#endpoints.asked + this.#services.asked;
  }

  setEndpoint(id: string, endpoint: Chosen | null): void {
    this.#endpoints.set(id, endpoint);
  }

  setServed(id: string, served: Chosen | null): void {
    this.#services.set(id, served);
  }

  use(definition: SetDefinition, user: SetUser): void {
    const held = this.#sets.get(definition.id);
    if (held !== undefined) {
      held.users.add(user);
      return;
    }
    const fresh: HeldSet = { definition, members: new Map(), users: new Set() };
    this.#sets.set(definition.id, fresh);
    this.#populationOf(definition).addSet(definition);
    fresh.users.add(user);
  }

  unuse(id: string, user: SetUser): void {
    const held = this.#sets.get(id);
    held?.users.delete(user);
    if (held === undefined || held.users.size > 0) return;
    this.#populationOf(held.definition).removeSet(id);
    this.#sets.delete(id);
  }

  get(id: string): { readonly definition: SetDefinition; readonly members: ReadonlyMap<string, number> } | undefined {
    return this.#sets.get(id);
  }

  #populationOf({ of }: SetDefinition): Population {
    return of === "services" ? this.#services : this.#endpoints;
  }

  #count(setId: string, thing: Chosen, isAdded: boolean): void {
    const held = this.#sets.get(setId);
    if (held === undefined) return;
    for (const member of membersOf(held.definition, thing)) {
      const before = held.members.get(member) ?? 0;
      const after = before + (isAdded ? 1 : -1);
      if (after === 0) held.members.delete(member);
      else held.members.set(member, after);
      if (before === 0 || after === 0) for (const user of held.users) user.memberChanged(setId, member, after > 0);
    }
  }
}
