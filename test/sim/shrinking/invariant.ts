/** The invariant that a failure of a run violates, without what differs from run to run. */

const label = /\b[A-Z]+\d+(?=:)/g;
const nested = new Set(["L2", "L3"]);

/**
 * Such as `S131`; `L2 S126` for a cluster that is stuck because S126 does not hold. A process that exits or throws has no label of
 * its own: then its error counts, without ids, numbers and place.
 */
export function invariantOf(failure: string): string {
  const labels = failure.match(label) ?? [];
  const [first] = labels;
  if (first === undefined) return withoutDetails(failure);
  if (first.startsWith("P")) return withoutDetails(failure);
  // A budget is one of a kind of wait.
  const kind = first === "L9" ? /of its kind \(([^)]+)\)/.exec(failure)?.[1] : undefined;
  if (kind !== undefined) return `${first} ${kind}`;
  const second = nested.has(first) ? labels[1] : undefined;
  return second === undefined ? first : `${first} ${second}`;
}

function withoutDetails(failure: string): string {
  const [claim = ""] = failure.split(/ \(on |\s+at /);
  const [head, ...rest] = claim.split(": ");
  const text = rest
    .join(": ")
    .replaceAll(/\b[0-9a-z]{25}\b/g, "ID")
    .replaceAll(/\d+/g, "N");
  return [head, ...(text === "" ? [] : [text])].join(": ");
}
