/** Steps that change what a service is: `deploy` with a whole definition, `update` with the keys that change. */
import { ServiceSpec } from "../../proto/gen/messages.ts";
import type { Action, ServicePlan } from "../../simulation/rehearsal/plan.ts";
import { child, mapping, Mistake, scalar, textOf, under, type MappingNode, type Node } from "../stack/located.ts";
import { mergedService, withoutReset } from "../stack/merge.ts";
import { Fields } from "./fields.ts";
import { behaviourDefaults } from "./read-behaviour.ts";
import { longService, readService } from "./read-service.ts";
import { noService, type Before } from "./timeline.ts";

const nothing: ServicePlan = { spec: ServiceSpec.create({}), behaviour: behaviourDefaults };

export function readDeploy(node: Node, path: string, step: Fields, before: Before): Action {
  const read = definition(node, path, step, before);
  const { timeline } = before;
  if (read !== null && timeline.has(read.name)) {
    step.mistakes.add(read.at, under(path, "service"), `'${read.name}' exists already; use 'update'`);
  }
  if (read === null) return { kind: "deploy", service: nothing };
  timeline.set(read.name, read.keys);
  return { kind: "deploy", service: planOf(read.name, read.keys, path, step, before) };
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
  const merged = withoutReset(mergedService(held, read.keys, read.name));
  timeline.set(read.name, merged);
  return { kind: "update", service: planOf(read.name, merged, path, step, before) };
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

function planOf(name: string, service: MappingNode, path: string, step: Fields, before: Before): ServicePlan {
  const root = rootOf(before, service);
  return step.mistakes.attempt(() => readService(name, service, path, { root, mistakes: step.mistakes }), nothing);
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
