/** Groups of nodes in a file: `name: worker-{1..20}` with the resources, labels and failures of each. */
import type { NodeFailures, NodePlan } from "../../simulation/rehearsal/plan.ts";
import { textOf, under, type Node } from "../stack/located.ts";
import { Fields } from "./fields.ts";
import { namesOf, nodesMax } from "./names.ts";
import type { Mistakes } from "./mistakes.ts";

/** A small virtual machine. */
export const nodeDefaults = { nanoCpus: 4e9, memoryBytes: 8 * 2 ** 30 } as const;
/** Shortest mean time between failures, and of one. */
const failureMsMin = 1_000;

export const groupKeys = ["name", "count", "cpus", "memory", "labels", "failures"] as const;

/** Nodes of one group. */
export function readGroup(fields: Fields): readonly NodePlan[] {
  const labels = labelsOf(fields);
  const failures = failuresOf(fields);
  const nanoCpus = BigInt(fields.nanoCpus("cpus", nodeDefaults.nanoCpus));
  const memoryBytes = BigInt(fields.bytes("memory", nodeDefaults.memoryBytes));
  return groupNames(fields).map((name, at) => ({ name, labels: labels(at), nanoCpus, memoryBytes, failures }));
}

function groupNames(fields: Fields): readonly string[] {
  const given = fields.text("name");
  if (given === "") {
    fields.require("name");
    return [];
  }
  const isSeries = given.includes("{");
  if (isSeries && fields.has("count")) {
    fields.add("count", "cannot be combined with a series in 'name'; remove one of them");
    return [];
  }
  const count = fields.whole("count", 1, [1, nodesMax]);
  const names = namesOf(fields.has("count") ? `${given}-{1..${count}}` : given);
  if (names.kind === "names") return names.names;
  fields.add("name", names.problem);
  return [];
}

/** A list of values gives each node the next one, in turn. */
function labelsOf(fields: Fields): (at: number) => Record<string, string> {
  const node = fields.node("labels");
  if (node === undefined) return () => ({});
  const pairs = new Fields(node, fields.pathOf("labels"), null, fields.mistakes);
  const values = pairs.keys.map((key) => {
    const value = pairs.node(key);
    if (value?.kind === "mapping") pairs.add(key, "must be a value, or a list of values");
    return [key, value?.kind === "list" ? pairs.texts(key).map(({ text }) => text) : textsOf(value)] as const;
  });
  return (at) => Object.fromEntries(values.map(([key, texts]) => [key, texts[at % texts.length] ?? ""] as const));
}

function textsOf(value: Node | undefined): readonly string[] {
  return [value === undefined ? "" : textOf(value)];
}

function failuresOf(fields: Fields): NodeFailures | null {
  const node = fields.node("failures");
  if (node === undefined) return null;
  const failures = new Fields(node, fields.pathOf("failures"), ["every", "for"], fields.mistakes);
  failures.require("every", "for");
  const meanUpMs = failures.ms("every", failureMsMin, failureMsMin);
  return { meanUpMs, meanDownMs: failures.ms("for", failureMsMin, failureMsMin) };
}

/** Adds mistakes for names that are not unique, and for too many; false: there are some. `known`: names that exist already. */
export function checkNames(
  groups: readonly { readonly nodes: readonly NodePlan[]; readonly node: Node; readonly path: string }[],
  known: ReadonlySet<string>,
  mistakes: Mistakes,
): boolean {
  let isRight = true;
  // Host names are the same in any case.
  const seen = new Set([...known].map((name) => name.toLowerCase()));
  for (const { nodes, node, path } of groups) {
    const again = nodes.find(({ name }) => seen.has(name.toLowerCase()));
    if (again !== undefined) {
      isRight = false;
      mistakes.add(node.at, under(path, "name"), `'${again.name}' exists already; give each node a name of its own`);
    }
    for (const { name } of nodes) seen.add(name.toLowerCase());
  }
  const last = groups.at(-1);
  if (seen.size <= nodesMax || last === undefined) return isRight;
  mistakes.add(last.node.at, last.path, `makes ${seen.size} nodes; at most ${nodesMax} are possible`);
  return false;
}
