/** Which nodes a step applies to: exactly one of `nodes`, `label` and `count`. */
import type { NodeChoice } from "../../simulation/rehearsal/plan.ts";
import type { Fields } from "./fields.ts";
import { listed, nearestOf } from "./mistakes.ts";
import { namesOf, nodesMax } from "./names.ts";
import type { Timeline } from "./timeline.ts";

export const choiceKeys = ["nodes", "label", "count"] as const;

export function readChoice(fields: Fields, timeline: Timeline): NodeChoice {
  const given = choiceKeys.filter((key) => fields.has(key));
  const [key] = given;
  if (key === undefined || given.length > 1) {
    fields.mistakes.add(
      fields.at,
      fields.path,
      given.length > 1
        ? `has ${given.join(" and ")}; keep one of them`
        : "requires one of 'nodes', 'label' and 'count'",
    );
    return { by: "number", count: 1 };
  }
  if (key === "count") return { by: "number", count: fields.whole("count", 1, [1, Math.max(1, timeline.nodes.size)]) };
  return key === "nodes" ? byName(fields, timeline.nodes) : byLabel(fields, timeline.labels);
}

/** A name, a series, or a list of both. */
function byName(fields: Fields, known: ReadonlySet<string>): NodeChoice {
  const names = new Set<string>();
  let count = 0;
  for (const { text, at, path } of fields.texts("nodes")) {
    const series = namesOf(text);
    if (series.kind === "invalid") fields.mistakes.add(at, path, series.problem);
    const found = series.kind === "names" ? series.names : [];
    count += found.length;
    if (count > nodesMax) {
      fields.mistakes.add(at, path, `names more than ${nodesMax} nodes; name each node once`);
      break;
    }
    const unknown = found.find((name) => !known.has(name));
    if (unknown !== undefined) {
      const nearest = nearestOf(unknown, [...known]);
      fields.mistakes.add(at, path, `no node '${unknown}' at this time; ${nearest ?? "name nodes of the cluster"}`);
    }
    for (const name of found) names.add(name);
  }
  if (names.size === 0) fields.add("nodes", "names no node");
  return { by: "name", names: [...names] };
}

/** `rack=a`. */
function byLabel(fields: Fields, known: ReadonlyMap<string, ReadonlySet<string>>): NodeChoice {
  const text = fields.text("label");
  const at = text.indexOf("=");
  const [label, value] = [text.slice(0, at), text.slice(at + 1)];
  if (at < 1) {
    fields.add("label", `must be LABEL=VALUE, not '${text}'`);
    return { by: "label", label: text, value: "" };
  }
  const values = known.get(label);
  const some = (words: Iterable<string>): string => listed([...words].slice(0, 10).map((word) => `'${word}'`));
  if (values === undefined) {
    const labels = known.size === 0 ? "no node has a label" : `the nodes' labels are ${some(known.keys())}`;
    fields.add("label", `no node has the label '${label}'; ${labels}`);
  } else if (!values.has(value)) {
    fields.add("label", `no node has the label '${label}' with the value '${value}'; its values are ${some(values)}`);
  }
  return { by: "label", label, value };
}
