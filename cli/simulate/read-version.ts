/** Steps that change what a service is: `deploy` with a whole definition, `update` with the keys that change. */
import { ServiceSpec, TaskSpec } from "../../proto/gen/messages.ts";
import type { Action, ServicePlan } from "../../simulation/rehearsal/plan.ts";
import {
  child,
  mapping,
  Mistake,
  scalar,
  textOf,
  under,
  type MappingNode,
  type Node,
  type Place,
} from "../stack/located.ts";
import { mergedService, withoutReset } from "../stack/merge.ts";
import { Fields } from "./fields.ts";
import { behaviourDefaults } from "./read-behaviour.ts";
import { portProblem, sameName } from "./conflicts.ts";
import { Mistakes } from "./mistakes.ts";
import { definitionOf, keyOf, longService, readService, redefined } from "./read-service.ts";
import { noService, type Before } from "./timeline.ts";

const nothing: ServicePlan = { spec: ServiceSpec.create({}), behaviour: behaviourDefaults };

export function readDeploy(node: Node, path: string, step: Fields, before: Before): Action {
  const read = definition(node, path, step, before);
  const { timeline } = before;
  if (read !== null && timeline.has(read.name)) {
    step.mistakes.add(read.at, under(path, "service"), `'${read.name}' exists already; use 'update'`);
  }
  if (read === null) return { kind: "deploy", service: nothing };
  const same = sameName(read.name, timeline.services);
  if (same !== undefined && same !== read.name)
    step.mistakes.add(read.at, under(path, "service"), `'${same}' exists already, and managers ignore case`);
  return { kind: "deploy", service: versionOf(read, read.keys, path, step, before) };
}

export function readUpdate(node: Node, path: string, step: Fields, before: Before): Action {
  const read = definition(node, path, step, before);
  if (read === null) return { kind: "update", service: nothing };
  const { timeline } = before;
  const held = timeline.get(read.name);
  if (held === undefined) {
    step.mistakes.add(read.at, under(path, "service"), noService(read.name, timeline));
    return { kind: "update", service: nothing };
  }
  const mode = child(child(read.keys, "deploy"), "mode");
  if (mode !== undefined && textOf(mode) !== modeText(held)) {
    const problem = `must stay '${modeText(held)}': managers change no service's mode; remove it, and deploy it again`;
    step.mistakes.add(mode.at, under(under(path, "deploy"), "mode"), problem);
    return { kind: "update", service: nothing };
  }
  const merged = withoutReset(mergedService(held, read.keys, read.name));
  return { kind: "update", service: versionOf(read, merged, path, step, before) };
}

const modeText = (service: MappingNode): string => {
  const mode = child(child(service, "deploy"), "mode");
  return mode === undefined ? "replicated" : textOf(mode);
};

/**
 * An update that changes only the inside of tasks, such as a command or an environment, replaces them as well. The inside is not
 * rehearsed; the number of forced updates stands for it. `before`: the version that is updated, and `forced` its number.
 */
function withInside(plan: ServicePlan, before: ServicePlan, forced: number): ServicePlan {
  const [now, then] = [definitionOf(plan)?.whole.task ?? null, definitionOf(before)?.whole.task ?? null];
  const isInside = isSameTask(plan.spec.task, before.spec.task) && !isSameTask(now, then);
  const task = TaskSpec.patch(plan.spec.task ?? TaskSpec.create(), { forceUpdate: isInside ? forced + 1 : forced });
  return redefined(plan, ServiceSpec.patch(plan.spec, { task }));
}

function isSameTask(one: TaskSpec | null, other: TaskSpec | null): boolean {
  if (one === null || other === null) return one === other;
  return Buffer.from(TaskSpec.encode(one)).equals(TaskSpec.encode(other));
}

/** Adds the version to the timeline. */
function versionOf(
  { at, name }: Definition,
  tree: MappingNode,
  path: string,
  step: Fields,
  before: Before,
): ServicePlan {
  const { timeline } = before;
  let plan = planOf(name, tree, path, step, { ...before, at });
  if (plan !== nothing) {
    const held = timeline.get(name);
    if (held !== undefined) {
      const read = { root: rootOf(before, held), mistakes: new Mistakes() };
      const forced = timeline.spec(name)?.task?.forceUpdate ?? 0;
      plan = withInside(plan, readService(name, held, path, read), forced);
    }
    const problem = portProblem(plan.spec, timeline.specs);
    const definition = definitionOf(plan);
    if (problem !== null && definition !== undefined) {
      const key = keyOf(definition, ["ports"]);
      step.mistakes.add(key.at, key.path, problem);
    }
  }
  timeline.set(name, tree, plan);
  return plan;
}

interface Definition {
  readonly name: string;
  readonly at: Node["at"];
  /** Compose keys in long form, without `service`. */
  readonly keys: MappingNode;
}

/** Null after a mistake. */
function definition(node: Node, path: string, step: Fields, before: Before): Definition | null {
  const fields = new Fields(node, path, null, step.mistakes);
  fields.require("service");
  const name = fields.text("service");
  if (name === "" || node.kind !== "mapping") return null;
  const read = (): Definition => {
    const keys = { ...node, entries: new Map([...node.entries].filter(([key]) => key !== "service")) };
    return { name, at: fields.placeOf("service"), keys: longService(name, keys, rootOf(before, node)) };
  };
  return step.mistakes.attempt(() => withPath(read, under("services", name), path), null);
}

/** Runs a reader of Compose files, and names the key as it is in the scenario. */
function withPath<Value>(read: () => Value, before: string, path: string): Value {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof Mistake) || !error.path.startsWith(before)) throw error;
    throw new Mistake(error.at, `${path}${error.path.slice(before.length)}`, error.problem, { cause: error });
  }
}

function planOf(
  name: string,
  service: MappingNode,
  path: string,
  step: Fields,
  before: Before & { readonly at: Place },
): ServicePlan {
  const root = rootOf(before, service);
  const read = (): ServicePlan => readService(name, service, path, { root, mistakes: step.mistakes, at: before.at });
  return step.mistakes.attempt(() => located(read, before.at), nothing);
}

/** Runs a reader, and reports mistakes of keys that come from an earlier version at this place. */
function located<Value>(read: () => Value, at: Place): Value {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof Mistake) || error.at.file !== "") throw error;
    throw new Mistake(at, error.path, error.problem, { cause: error });
  }
}

/** The cluster's networks, as a file would define them. */
function rootOf({ networks }: Before, { at }: Node): MappingNode {
  const defined = networks.map((name) => [name, scalar(null, at)] as const);
  return mapping([["networks", mapping(defined, at)]], at);
}

/** The service with other replicas; null: it has none. */
export function withReplicas(service: MappingNode, replicas: number): MappingNode | null {
  const deploy = child(service, "deploy");
  const mode = child(deploy, "mode");
  if (mode !== undefined && textOf(mode).startsWith("global")) return null;
  const count = scalar(replicas, service.at);
  const scaled = mapping([["deploy", mapping([["replicas", count]], service.at)]], service.at);
  return mergedService(service, scaled, "");
}
