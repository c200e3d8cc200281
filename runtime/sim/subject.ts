/** NATS's subject patterns. */

/** True if `subject` matches `pattern`: `*` matches one token, a final `>` one or more. */
export function matches(pattern: string, subject: string): boolean {
  if (pattern === subject) return true;
  const wanted = tokensOf(pattern);
  const tokens = tokensOf(subject);
  for (let at = 0; at < wanted.length; at += 1) {
    const want = wanted[at];
    if (want === ">") return tokens.length > at;
    if (tokens[at] === undefined || (want !== "*" && want !== tokens[at])) return false;
  }
  return wanted.length === tokens.length;
}

/** Subjects whose tokens are kept; then all are forgotten. */
const knownMax = 10_000;
const known = new Map<string, readonly string[]>();

function tokensOf(subject: string): readonly string[] {
  let tokens = known.get(subject);
  if (tokens === undefined) {
    if (known.size >= knownMax) known.clear();
    known.set(subject, (tokens = subject.split(".")));
  }
  return tokens;
}
