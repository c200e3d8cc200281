/** Defects of the log that a replica finds. Its owner then stops applying and reports them. */

/** The log does not fit the replica. */
export class LogBreak extends Error {
  override readonly name: string = "LogBreak";
  readonly sequence: number;
  /** The failed check, in words. */
  readonly check: string;
  constructor(sequence: number, check: string) {
    super(`the log breaks at record ${sequence}: ${check}`);
    this.sequence = sequence;
    this.check = check;
  }
}

/** A later version of Muster wrote it, so this version cannot apply it correctly. `sequence`: its position in the log. */
export class FutureRecord extends LogBreak {
  override readonly name = "FutureRecord";
}

/** The log lacks what this manager has seen in it. `sequence`: of the first missing or different record. */
export class LogLoss extends LogBreak {
  override readonly name = "LogLoss";
}
