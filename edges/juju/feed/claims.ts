/**
 * Resolves names that several places claim. Tasks of two removed services may still be ending under one name: one of them is
 * shown, independent of the order of arrival, and the next one after it is removed.
 *
 * F6: the last place in sort order holds a name that several claim.
 */
export class Claims<Mark> {
  readonly #byName = new Map<string, Map<string, Mark>>();
  readonly #names = new Map<string, string>();

  /**
   * Sets the name that a place claims, or none. `isHolder`: the place holds it. `others`: marks of the places whose view must
   * be updated as a result.
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
