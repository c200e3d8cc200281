/**
 * Limits the cost of executing templates. A step is one operand, call, part or iteration of a range, about 0.2 µs; 64
 * characters that are read, copied or written cost one step. Several templates may share one budget, so that a thousand small
 * templates cost no more than one large one.
 */

/** Maximum size of one value, in characters. A config, the largest content of a task, has 1,024,000 bytes. */
export const valueMax = 1024 * 1024;
/** Maximum number of variables in scope: each is searched by name, newest first. */
export const variablesMax = 1_000;

const charactersPerStep = 64;

export class TemplateBudget {
  readonly steps: number;
  /** Limit of the output of all templates of this budget, in characters. */
  readonly output: number;
  #steps = 0;
  #output = 0;

  constructor({ output, steps }: { readonly steps: number; readonly output: number }) {
    this.steps = steps;
    this.output = output;
  }

  /** Throws Error if the steps are used up. */
  spend(steps: number, characters = 0): void {
    this.#steps += steps + Math.ceil(characters / charactersPerStep);
    if (this.#steps > this.steps) throw new Error(`the template exceeds ${this.steps} steps`);
  }

  /** Throws Error if the output would exceed the limit. */
  write(characters: number): void {
    this.spend(0, characters);
    this.#output += characters;
    if (this.#output > this.output) throw new Error(`the output exceeds ${this.output} characters`);
  }
}

/** Characters of strings, one for anything else; lists and maps count their items. Stops counting beyond `valueMax`. */
function sizeOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  const items = Array.isArray(value) ? value : value instanceof Map ? [...value.keys(), ...value.values()] : [];
  let size = 1 + items.length;
  for (const item of items) {
    if (size > valueMax) break;
    size += sizeOf(item);
  }
  return size;
}

/** Returns the value's size; throws Error if it is too large. */
export function checkedSize(value: unknown): number {
  const size = sizeOf(value);
  if (size > valueMax) throw new Error(`a value exceeds ${valueMax} characters`);
  return size;
}
