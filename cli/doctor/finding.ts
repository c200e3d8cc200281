/** One thing that `muster doctor` examined. */
export interface Finding {
  /** Short name, such as `fsync`. */
  readonly check: string;
  /** `problem`: something does not work, or will soon lose data. `warning`: works, with a limit that an operator should know. */
  readonly level: "ok" | "warning" | "problem";
  /** A clause with figures. */
  readonly found: string;
  /** An instruction; empty if nothing is to be done. */
  readonly remedy: string;
}

export const ok = (check: string, found: string): Finding => ({ check, level: "ok", found, remedy: "" });
export const warning = (check: string, found: string, remedy: string): Finding => ({
  check,
  level: "warning",
  found,
  remedy,
});
export const problem = (check: string, found: string, remedy: string): Finding => ({
  check,
  level: "problem",
  found,
  remedy,
});
