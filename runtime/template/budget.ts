/**
 * Bounds what a template may cost whoever executes it. A step is one operand, call, part or turn of a range, about 0.2 µs;
 * characters that are read, copied or written cost a step for each 64. Several templates may share one budget, so that a
 * thousand small templates cost no more than one large one.
 */

/** Size of one value, in characters. A config, the largest content that a task can get, has 1,024,000 bytes. */
export const valueMax = 1024 * 1024;
/** Variables in scope at once: each is searched for by name, newest first. */
export const variablesMax = 1_000;

const charactersPerStep = 64;

export class TemplateBudget {
  readonly steps: number;
  /** What all templates of this budget may write, in characters. */
  readonly output: number;
  #steps = 0;
  #output = 0;

  constructor({ output, steps }: { readonly steps: number; readonly output: number }) {
    this.steps = steps;
    this.output = output;
  }

  /** Throws Error when the steps are used up. */
  spend(steps: number, characters = 0): void {
    this.#steps += steps + Math.ceil(characters / charactersPerStep);
    if (this.#steps > this.steps) throw new Error(`more than ${this.steps} steps`);
  }

  /** Throws Error when more would be written than is allowed. */
  write(characters: number): void {
    this.spend(0, characters);
    this.#output += characters;
    if (this.#output > this.output) throw new Error(`more than ${this.output} characters of output`);
  }
}

/** Characters of texts, and one for whatever else; lists and maps count their items. Stops counting beyond `valueMax`. */
export function sizeOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  const items = Array.isArray(value) ? value : value instanceof Map ? [...value.keys(), ...value.values()] : [];
  let size = 1 + items.length;
  for (const item of items) {
    if (size > valueMax) break;
    size += sizeOf(item);
  }
  return size;
}

/** Throws Error for a value that is too large; else gives its size. */
export function checkedSize(value: unknown): number {
  const size = sizeOf(value);
  if (size > valueMax) throw new Error(`a value of more than ${valueMax} characters`);
  return size;
}
