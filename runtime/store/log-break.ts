/** What a replica finds wrong with the log. Whoever meets one of these stops applying and says so. */

/** Log and replica do not fit together. */
export class LogBreak extends Error {
  override readonly name: string = "LogBreak";
  readonly sequence: number;
  /** Which check failed, in words. */
  readonly check: string;
  constructor(sequence: number, check: string) {
    super(`the log breaks at record ${sequence}: ${check}`);
    this.sequence = sequence;
    this.check = check;
  }
}

/** A later version of Muster wrote it: this one can do nothing right with it. `sequence`: where it stands in the log. */
export class FutureRecord extends LogBreak {
  override readonly name = "FutureRecord";
}

/** The log lacks what this manager has seen in it. `sequence`: of the first record that is missing or another one. */
export class LogLoss extends LogBreak {
  override readonly name = "LogLoss";
}
