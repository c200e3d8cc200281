/** One line broken on purpose: what no test and no seed notices, nothing holds. */

export interface Mutant {
  /** Unique; for `--only`. */
  readonly name: string;
  /** Path in this tree. */
  readonly file: string;
  /** Stands exactly once in the file, or the list has rotted. */
  readonly original: string;
  readonly replacement: string;
  /** What a user or operator would meet, in a few words. */
  readonly breaks: string;
  /** `time-fault-order`: it does harm only at certain times, after faults or in some order, so that seeds should find it. */
  readonly kind: "time-fault-order" | "logic";
  /** Files of `test/unit/` and `test/model/` that concern it, without their endings. */
  readonly tests: readonly string[];
}

/** The file's text with the breakage in it; throws when the original does not stand there exactly once. */
export function broken({ file, name, original, replacement }: Mutant, text: string): string {
  const at = text.indexOf(original);
  if (at < 0) throw new Error(`mutant ${name}: ${file} does not contain the original text; update the list`);
  if (text.indexOf(original, at + 1) >= 0)
    throw new Error(`mutant ${name}: ${file} contains the original text more than once; take more of the line`);
  return text.slice(0, at) + replacement + text.slice(at + original.length);
}
