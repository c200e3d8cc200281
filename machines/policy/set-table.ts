/**
 * The sets that followed nodes use, with who is in them. A set is there while a view uses it; its members are counted, as two
 * things may bring the same address, and change only by what comes and goes.
 */
import type { SetDefinition } from "./compile.ts";
import { membersOf } from "./endpoint.ts";
import type { Chosen } from "./facts.ts";
import { SelectorIndex } from "./selector-index.ts";

/** Who uses a set: told of members that come and go. */
export interface SetUser {
  memberChanged(setId: string, member: string, isThere: boolean): void;
}

interface HeldSet {
  readonly definition: SetDefinition;
  /** How many things bring each member. */
  readonly members: Map<string, number>;
  readonly users: Set<SetUser>;
}

/** What selectors of sets choose from: things of one sort by id. */
class Population {
  readonly #things = new Map<string, Chosen>();
  readonly #index = new SelectorIndex((setId, id, matches) => {
    // During a change of the thing itself, the whole of it is compared afterwards.
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
    // What comes first, then what goes: a member that stays is never gone in between.
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

  #count(setId: string, thing: Chosen, comes: boolean): void {
    const held = this.#sets.get(setId);
    if (held === undefined) return;
    for (const member of membersOf(held.definition, thing)) {
      const before = held.members.get(member) ?? 0;
      const after = before + (comes ? 1 : -1);
      if (after === 0) held.members.delete(member);
      else held.members.set(member, after);
      if (before === 0 || after === 0) for (const user of held.users) user.memberChanged(setId, member, after > 0);
    }
  }
}
