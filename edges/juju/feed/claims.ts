/**
 * Who has a name that several places could have. The tasks of two services that are both gone may still end under one
 * name: the same one of them is shown, in whatever order they came, and the next when it has gone.
 *
 * F6: of the places that claim a name the one that sorts last has it.
 */
export class Claims<Mark> {
  readonly #byName = new Map<string, Map<string, Mark>>();
  readonly #names = new Map<string, string>();

  /**
   * The place now claims that name, or none. `isHolder`: it has it. `others`: marks of the places that have to be looked at
   * again because of it.
   */
  put(
    place: string,
    name: string | null,
    mark: Mark,
  ): { readonly isHolder: boolean; readonly others: readonly Mark[] } {
    const before = this.#names.get(place);
    const others: Mark[] = [];
    if (before !== undefined && before !== name) {
      const claims = this.#byName.get(before);
      const wasHolder = claims !== undefined && holder(claims) === place;
      claims?.delete(place);
      this.#names.delete(place);
      if (claims?.size === 0) this.#byName.delete(before);
      else if (claims !== undefined && wasHolder) others.push(claims.get(holder(claims)) as Mark);
    }
    if (name === null) return { isHolder: false, others };
    const claims = this.#byName.get(name) ?? new Map<string, Mark>();
    const last = claims.size === 0 ? place : holder(claims);
    this.#byName.set(name, claims.set(place, mark));
    this.#names.set(place, name);
    if (place < last) return { isHolder: false, others };
    if (last !== place) others.push(claims.get(last) as Mark);
    return { isHolder: true, others };
  }
}

function holder(claims: ReadonlyMap<string, unknown>): string {
  let last = "";
  for (const place of claims.keys()) if (place > last) last = place;
  return last;
}
