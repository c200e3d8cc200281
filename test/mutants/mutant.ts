/** One line broken on purpose: if no test and no seed notices, nothing protects it. */

export interface Mutant {
  /** Unique; for `--only`. */
  readonly name: string;
  /** Path in this tree. */
  readonly file: string;
  /** Must occur exactly once in the file; otherwise the list is out of date. */
  readonly original: string;
  readonly replacement: string;
  /** The effect for a user or operator, in a few words. */
  readonly breaks: string;
  /** `time-fault-order`: it does harm only at certain times, after faults or in some order, so that seeds should find it. */
  readonly kind: "time-fault-order" | "logic";
  /** Related files of `test/unit/` and `test/model/`, without their extensions. */
  readonly tests: readonly string[];
}

/** The file's text with the mutant applied; throws if the original does not occur exactly once. */
export function broken({ file, name, original, replacement }: Mutant, text: string): string {
  const at = text.indexOf(original);
  if (at < 0) throw new Error(`mutant ${name}: ${file} does not contain the original text; update the list`);
  if (text.indexOf(original, at + 1) >= 0)
    throw new Error(`mutant ${name}: ${file} contains the original text more than once; quote more of the line`);
  return text.slice(0, at) + replacement + text.slice(at + original.length);
}
