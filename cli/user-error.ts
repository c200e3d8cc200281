/** What a user can mend: shown as its one sentence, exit status 1, no stack. */
export class UserError extends Error {
  override readonly name = "UserError";
}
