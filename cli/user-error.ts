/** What a user can mend: shown as its one sentence, exit status 1, no stack. */
export class UserError extends Error {
  override readonly name: string = "UserError";
}

/** There is none of that name or id; `rm --force` is content with that. */
export class NotThereError extends UserError {
  override readonly name = "NotThereError";
}

/** In the words of Docker's command, which says it of volumes in another way. */
export function notThere(noun: string, text: string): NotThereError {
  return new NotThereError(noun === "volume" ? `get ${text}: no such volume` : `${noun} ${text} not found`);
}

/** A command that ran elsewhere has ended with this status, and so does ours; it has said itself what there is to say. */
export class CommandEnded extends Error {
  override readonly name = "CommandEnded";
  readonly status: number;
  constructor(status: number) {
    super(`it ended with status ${status}`);
    this.status = status;
  }
}
