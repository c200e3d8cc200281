/** NATS's subject patterns. */

/** True if `subject` matches `pattern`: `*` matches one token, a final `>` one or more. */
export function matches(pattern: string, subject: string): boolean {
  if (pattern === subject) return true;
  const wanted = pattern.split(".");
  const tokens = subject.split(".");
  for (const [at, want] of wanted.entries()) {
    if (want === ">") return tokens.length > at;
    if (tokens[at] === undefined || (want !== "*" && want !== tokens[at])) return false;
  }
  return wanted.length === tokens.length;
}
