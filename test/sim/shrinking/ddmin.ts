/** Delta debugging: the algorithm ddmin of Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002). */

/**
 * A subset of `items`, in their order, that still fails; with a `fails` that depends on its argument only, removing any single item
 * from it would not fail. `items` itself must fail.
 */
export async function ddmin<Item>(
  items: readonly Item[],
  fails: (some: readonly Item[]) => Promise<boolean>,
): Promise<readonly Item[]> {
  if (items.length > 0 && (await fails([]))) return [];
  let found = items;
  let parts = 2;
  while (found.length >= 2) {
    const size = Math.ceil(found.length / parts);
    const cuts = Array.from({ length: Math.ceil(found.length / size) }, (_, at) => at * size);
    let smaller: readonly Item[] | null = null;
    for (const cut of cuts) {
      const without = [...found.slice(0, cut), ...found.slice(cut + size)];
      if (!(await fails(without))) continue;
      smaller = without;
      break;
    }
    if (smaller !== null) {
      found = smaller;
      parts = Math.max(parts - 1, 2);
    } else if (parts < found.length) parts = Math.min(parts * 2, found.length);
    else break;
  }
  return found;
}

/** The smallest number from `least` to `most` that fails, if larger ones do too; `most` itself must fail. */
export async function smallest(
  least: number,
  most: number,
  fails: (number: number) => Promise<boolean>,
): Promise<number> {
  let [low, high] = [least, most];
  let next = least;
  while (low < high) {
    if (await fails(next)) high = next;
    else low = next + 1;
    next = Math.floor((low + high) / 2);
  }
  return high;
}
