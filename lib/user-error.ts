/** An error that the user can fix: printed as one line without a stack, exit status 1. */
export class UserError extends Error {
  override readonly name: string = "UserError";
}

/** No object has that name or id; `rm --force` ignores this. */
export class NotThereError extends UserError {
  override readonly name = "NotThereError";
}

/** Docker's message. */
export function notThere(noun: string, text: string): NotThereError {
  return new NotThereError(`${noun} ${text} not found`);
}

/** A remote command has ended with this status, which becomes ours; it has printed its own messages. */
export class CommandEnded extends Error {
  override readonly name = "CommandEnded";
  readonly status: number;
  constructor(status: number) {
    super(`the command exited with status ${status}`);
    this.status = status;
  }
}

/** An invalid command line: exit status 125, like Docker's. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
