/**
 * A plan of a simulated run as a YAML file: what differs from a world in which nothing happens by itself. Its names are those of
 * `SimOptions`. Unlike the scenarios of `muster simulate`, which are steps of an operator, it is one run of one seed.
 */
import { child, mistake, plainOf, textOf, under, type MappingNode, type Node } from "../../../cli/stack/located.ts";
import { parseYaml, yamlText } from "../../../cli/stack/yaml.ts";
import type { Strike } from "../../../simulation/faults/fault.ts";
import { faults } from "../../../simulation/faults/kinds.ts";
import { drawOptions, type SimOptions } from "../../../simulation/options.ts";
import { trialNames, type TrialName } from "../../../simulation/trial-names.ts";
import { busyLeaves, leavesOf, withLeaves, type Leaf } from "./leaves.ts";

/** Larger clusters are for `muster simulate`. */
const nodesMax = 50;
/** Maximum length of the fault phase, in virtual milliseconds. */
const faultsMsMax = 3_600_000;

export interface PlannedRun {
  readonly options: SimOptions;
  /** Invariant that the run violates; null: none, so the file is a test that must pass. */
  readonly violates: string | null;
}

/** `comment`: lines at the top of the file. */
export function scenarioText({ options, violates }: PlannedRun, comment: readonly string[]): string {
  const { agents, faultsMs, managers, onlyTrials, seed, strikes } = options;
  const values: Record<string, unknown> = {
    ...(violates === null ? {} : { violates }),
    seed,
    managers,
    agents,
    faultsMs,
  };
  for (const [path, value] of busyLeaves(options)) {
    const dot = path.indexOf(".");
    if (dot === -1) values[path] = value;
    else values[path.slice(0, dot)] = { ...(values[path.slice(0, dot)] as object), [path.slice(dot + 1)]: value };
  }
  if (onlyTrials !== null) values["onlyTrials"] = onlyTrials;
  if (strikes !== null) values["strikes"] = strikes;
  return `${comment.map((line) => `# ${line.replaceAll("\n", " ")}\n`).join("")}${yamlText(values)}`;
}

/** `file`: its name in errors. Throws Mistake, with line and key. */
export function readScenario(text: string, file: string): PlannedRun {
  const root = parseYaml(text, file, "a scenario must be a mapping with 'seed'");
  const wholeOf = (key: string, least: number, most: number, otherwise?: number): number => {
    const node = child(root, key);
    const value = node === undefined ? otherwise : plainOf(node);
    if (typeof value === "number" && Number.isInteger(value) && value >= least && value <= most) return value;
    throw mistake((node ?? root).at, key, `must be a whole number from ${least} to ${most}`);
  };
  const size = {
    seed: wholeOf("seed", 0, Number.MAX_SAFE_INTEGER),
    managers: wholeOf("managers", 1, nodesMax, 1),
    agents: wholeOf("agents", 1, nodesMax, 1),
    faultsMs: wholeOf("faultsMs", 0, faultsMsMax, 1_000),
  };
  const strikes = child(root, "strikes");
  const onlyTrials = child(root, "onlyTrials");
  const violates = child(root, "violates");
  const leaves = new Map(readLeaves(root, new Set([...Object.keys(size), "strikes", "onlyTrials", "violates"])));
  const lists = {
    strikes: strikes === undefined ? null : itemsOf(strikes, "strikes").map(readStrike),
    onlyTrials: onlyTrials === undefined ? null : itemsOf(onlyTrials, "onlyTrials").map(readTrial),
  };
  if (lists.strikes !== null && [...leaves.keys()].some((path) => path.startsWith("rates.")))
    throw mistake(child(root, "rates")?.at ?? root.at, "rates", "excludes 'strikes'");
  const options = withLeaves({ ...drawOptions(size.seed), ...size, ...lists }, leaves);
  return { options, violates: violates === undefined ? null : textOf(violates) };
}

function* readLeaves(root: MappingNode, apart: ReadonlySet<string>): Generator<[string, Leaf]> {
  const known = leavesOf(drawOptions(1));
  for (const [key, { at, value }] of root.entries) {
    if (apart.has(key)) continue;
    const isGroup = [...known.keys()].some((path) => path.startsWith(`${key}.`));
    if (isGroup !== (value.kind === "mapping") || (!isGroup && !known.has(key)))
      throw mistake(at, under("", key), isGroup ? "must be a mapping" : "is not an option of a simulated run");
    const found: [string, Node][] =
      value.kind === "mapping"
        ? [...value.entries].map(([name, entry]) => [`${key}.${name}`, entry.value])
        : [[key, value]];
    for (const [path, node] of found) {
      const expected = known.get(path);
      const given = plainOf(node);
      if (expected === undefined) throw mistake(node.at, path, "is not an option of a simulated run");
      if (typeof given !== typeof expected || (typeof given === "number" && !(given >= 0 && given < Infinity)))
        throw mistake(
          node.at,
          path,
          typeof expected === "number" ? "must be a number from 0" : "must be true or false",
        );
      yield [path, given as Leaf];
    }
  }
}

function itemsOf(node: Node, path: string): readonly Node[] {
  if (node.kind === "list") return node.items;
  throw mistake(node.at, path, "must be a list");
}

function readStrike(node: Node, index: number): Strike {
  const path = under("strikes", index);
  const given = plainOf(node) as Partial<Strike> | null;
  if (node.kind !== "mapping" || given === null) throw mistake(node.at, path, "must be a mapping");
  for (const [key, { at }] of node.entries)
    if (!["kind", "atMs", "draw"].includes(key)) throw mistake(at, under(path, key), "is not a key of a strike");
  const { atMs, draw = 0, kind } = given;
  if (!faults.some((fault) => fault.kind === kind))
    throw mistake(node.at, under(path, "kind"), `must be one of ${faults.map((fault) => fault.kind).join(", ")}`);
  if (typeof atMs !== "number" || !(atMs >= 0 && atMs <= faultsMsMax))
    throw mistake(node.at, under(path, "atMs"), `must be a number from 0 to ${faultsMsMax}`);
  if (!Number.isInteger(draw) || draw < 0) throw mistake(node.at, under(path, "draw"), "must be a whole number from 0");
  return { kind: kind as string, atMs, draw };
}

function readTrial(node: Node, index: number): TrialName {
  const found = trialNames.find((name) => name === plainOf(node));
  if (found !== undefined) return found;
  throw mistake(node.at, under("onlyTrials", index), `must be one of ${trialNames.join(", ")}`);
}
