/** Names of nodes: patterns such as `worker-{1..20}`, which stand for a series. */

/** Nodes of a cluster in a rehearsal, including those that join. More do not fit into the memory of one process. */
export const nodesMax = 20_000;
/** Longest host name, from RFC 1123. */
const lengthMax = 63;

const series = /^([^{}]*)\{(\d+)\.\.(\d+)\}([^{}]*)$/;
const name = /^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$/;

export type Names =
  | { readonly kind: "names"; readonly names: readonly string[] }
  | { readonly kind: "invalid"; readonly problem: string };

/**
 * The names of a pattern, in order; a text without braces stands for itself. With leading zeros (`{01..20}`), all numbers have
 * the length of the first.
 */
export function namesOf(text: string): Names {
  const match = series.exec(text);
  if (match === null) {
    if (/[{}]/.test(text)) return invalid(`must be a name, or a series such as worker-{1..20}, not '${text}'`);
    return checked([text]);
  }
  const [, before = "", from = "", to = "", after = ""] = match;
  const [first, last] = [Number(from), Number(to)];
  if (first > last) return invalid(`must not count down: '${text}'`);
  if (last - first >= nodesMax) return invalid(`has more than ${nodesMax} nodes: '${text}'`);
  const width = from.startsWith("0") ? from.length : 0;
  const count = last - first + 1;
  return checked(
    Array.from({ length: count }, (_, at) => `${before}${String(first + at).padStart(width, "0")}${after}`),
  );
}

function checked(names: readonly string[]): Names {
  const wrong = names.find((each) => each.length > lengthMax || !name.test(each));
  return wrong === undefined
    ? { kind: "names", names }
    : invalid(
        `has an invalid name '${wrong}'; use at most ${lengthMax} letters, digits, '.', '_' and '-', and begin and end with a letter or digit`,
      );
}

function invalid(problem: string): Names {
  return { kind: "invalid", problem };
}
