/**
 * Remembers the last result of a function, for a caller that asks again and again while its inputs rarely change. The function has
 * nothing but these inputs, so none that it reads can be missing from the comparison.
 */
export class LastResult<Inputs extends readonly unknown[], Result> {
  readonly #compute: (...inputs: Inputs) => Result;
  #last: { readonly inputs: Inputs; readonly result: Result } | null = null;

  /** `compute`: a function of its module, since a method or a closure could read more than its inputs. */
  constructor(compute: (this: void, ...inputs: Inputs) => Result) {
    this.#compute = compute;
  }

  /** Computed again when an input is another. Lists and maps are compared by their entries; other objects are replaced when they change. */
  of(...inputs: Inputs): Result {
    if (this.#last === null || !isSame(inputs, this.#last.inputs))
      this.#last = { inputs, result: this.#compute(...inputs) };
    return this.#last.result;
  }
}

function isSame(input: unknown, before: unknown): boolean {
  if (input === before) return true;
  if (input instanceof Map && before instanceof Map) return isSame([...input], [...before]);
  if (!Array.isArray(input) || !Array.isArray(before)) return false;
  return input.length === before.length && input.every((each, at) => isSame(each, before[at]));
}
