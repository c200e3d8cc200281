/** Remembers the last result of a computation, for a caller that asks again and again while its inputs rarely change. */
export class LastResult<Result> {
  #inputs: readonly unknown[] = [];
  #last: { readonly result: Result } | null = null;

  /** `inputs`: all that the result depends on, each of which is replaced when it changes. Computed again when one of them is another. */
  of(inputs: readonly unknown[], compute: () => Result): Result {
    const before = this.#inputs;
    if (this.#last !== null && inputs.length === before.length && inputs.every((each, at) => each === before[at]))
      return this.#last.result;
    this.#last = { result: compute() };
    this.#inputs = inputs;
    return this.#last.result;
  }
}
