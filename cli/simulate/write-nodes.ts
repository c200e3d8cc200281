/** Groups a plan's nodes for `cluster.yaml`: neighbours that differ only in the number at the end of their names are one series. */
import type { NodePlan } from "../../simulation/rehearsal/plan.ts";
import { isDeepStrictEqual } from "node:util";
import { bytesText, compact, msText } from "./plain-values.ts";

interface Series {
  readonly before: string;
  /** Text of the first number; null: the name has none. */
  readonly first: string | null;
  last: number;
  readonly node: NodePlan;
}

export function groupsOf(nodes: readonly NodePlan[]): readonly unknown[] {
  const groups: Series[] = [];
  for (const node of nodes) {
    const group = groups.at(-1);
    const [, before = "", digits] = /^(.*?)(\d+)$/.exec(node.name) ?? [node.name, node.name];
    const isNext =
      group !== undefined && before === group.before && digits === nextOf(group) && isAlike(node, group.node);
    if (isNext) group.last += 1;
    else groups.push({ before, first: digits ?? null, last: Number(digits ?? 0), node });
  }
  return groups.map(valueOf);
}

/** Text of the number after the last one, with the length that `namesOf` would give it. */
function nextOf({ first, last }: Series): string | null {
  if (first === null || !Number.isSafeInteger(last)) return null;
  return String(last + 1).padStart(first.startsWith("0") ? first.length : 0, "0");
}

function isAlike(a: NodePlan, b: NodePlan): boolean {
  return isDeepStrictEqual({ ...a, name: "" }, { ...b, name: "" });
}

function valueOf({ before, first, last, node }: Series): Record<string, unknown> {
  const isSeries = first !== null && Number(first) !== last;
  const { labels, failures } = node;
  return compact({
    name: isSeries
      ? `${before}{${first}..${String(last).padStart(first.startsWith("0") ? first.length : 0, "0")}}`
      : node.name,
    cpus: Number(node.nanoCpus) / 1e9,
    memory: bytesText(Number(node.memoryBytes)),
    labels: Object.keys(labels).length === 0 ? undefined : labels,
    failures: failures === null ? undefined : { every: msText(failures.meanUpMs), for: msText(failures.meanDownMs) },
  });
}
