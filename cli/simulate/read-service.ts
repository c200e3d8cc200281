/**
 * Services of a rehearsal's files, in Compose syntax with `x-behaviour`. Differences from a stack: the service has exactly
 * its name in the file, an image is optional, and without `networks` it is on none.
 */
import { checkServiceSpec } from "../../machines/validation/service.ts";
import { parseConstraint } from "../../machines/scheduling/constraints.ts";
import { modeOf } from "../../machines/orchestration/service-mode.ts";
import { ServiceSpec, TaskSpec } from "../../proto/gen/messages.ts";
import type { ServicePlan } from "../../simulation/rehearsal/plan.ts";
import type { Lookups } from "../service/references.ts";
import { serviceSpecOf } from "../stack/convert-service.ts";
import { isProcess } from "../stack/convert-process.ts";
import {
  child,
  mapping,
  mistake,
  scalar,
  textOf,
  under,
  type MappingNode,
  type Node,
  type Place,
} from "../stack/located.ts";
import { composeFile } from "../stack/schema.ts";
import { check } from "../stack/shape.ts";
import { withLongForms } from "../stack/short-forms.ts";
import { View } from "../stack/view.ts";
import { readBehaviour } from "./read-behaviour.ts";
import type { Mistakes } from "./mistakes.ts";
import { reducedSpec } from "./reduced-spec.ts";

/** Tasks of one service. */
export const replicasMax = 100_000;

/** Stands for itself: a rehearsal's objects have no ids yet. */
const itself: Lookups = { network: (name) => name, secret: (name) => name, config: (name) => name };
/** Keys that read other files or leave the service out. */
const unsupported = ["extends", "profiles"] as const;

/** Checks the service's keys, and expands their short forms. `root`: other sections of the file. Throws Mistake. */
export function longService(name: string, service: Node, root: MappingNode): MappingNode {
  const tree = treeOf(name, service, root);
  check(tree, composeFile, "");
  for (const key of unsupported) {
    const given = child(service, key);
    if (given === undefined) continue;
    const path = under(under("services", name), key);
    throw mistake(given.at, path, "is not supported in a rehearsal; use the output of 'muster stack config'");
  }
  const long = child(child(withLongForms(tree, "/"), "services"), name);
  return long?.kind === "mapping" ? long : mapping([], service.at);
}

function treeOf(name: string, service: Node, root: MappingNode): MappingNode {
  const sections = ["networks", "volumes", "secrets", "configs"].map((key) => [key, child(root, key)] as const);
  return mapping([["services", mapping([[name, service]], service.at)], ...sections], root.at);
}

/** `service`: in long form. `path`: of the service in its file. Throws Mistake. */
export function readService(name: string, service: MappingNode, path: string, around: Around): ServicePlan {
  const { root, mistakes } = around;
  const behaviour = readBehaviour(service, path, mistakes);
  const view = new View(withImage(name, service, path), path);
  const project = new View(withLongForms(treeOf(name, service, root), "/"), "");
  const whole = serviceSpecOf(name, view, { stack: "", project, lookups: itself });
  const spec = reducedSpec(view.has("networks") ? whole : withoutNetworks(whole));
  const refusal = checkServiceSpec(spec);
  if (refusal !== null) throw mistake(service.at, path, refusal.message);
  checkCount(spec, view);
  checkConstraints(spec, view);
  const plan = { spec, behaviour };
  definitions.set(plan, { service, path, at: around.at ?? service.at, whole });
  return plan;
}

/** Where a file defines a version of a service. */
interface Definition {
  readonly service: MappingNode;
  readonly path: string;
  /** In place of keys that come from an earlier version. */
  readonly at: Place;
  /** The spec with the inside of its tasks, as a stack would deploy it. */
  readonly whole: ServiceSpec;
}

const definitions = new WeakMap<ServicePlan, Definition>();

/** Undefined: the plan comes from a running cluster. */
export function definitionOf(plan: ServicePlan): Definition | undefined {
  return definitions.get(plan);
}

/** The plan with another spec, and the same definition. */
export function redefined(plan: ServicePlan, spec: ServiceSpec): ServicePlan {
  const changed = { ...plan, spec };
  const definition = definitions.get(plan);
  if (definition !== undefined) definitions.set(changed, definition);
  return changed;
}

/** Place and path of a key of the definition, or of the innermost one that is there. */
export function keyOf(
  { at, path, service }: Definition,
  keys: readonly string[],
): { readonly at: Place; readonly path: string } {
  let place: Node = service;
  let [found, name] = [at, path];
  for (const key of keys) {
    const next = child(place, key);
    if (next === undefined) break;
    place = next;
    name = under(name, key);
    found = next.at.file === "" ? at : next.at;
  }
  return { at: found, path: name };
}

interface Around {
  /** The file with the definitions that services refer to. */
  readonly root: MappingNode;
  readonly mistakes: Mistakes;
  /** Place of the definition, if `service` begins elsewhere. */
  readonly at?: Place;
}

/** A process has no image. */
function withImage(name: string, service: MappingNode, path: string): MappingNode {
  const image = child(service, "image");
  if ((image !== undefined && textOf(image) !== "") || isProcess(new View(service, path))) return service;
  const entries = new Map(service.entries);
  entries.set("image", { at: service.at, value: scalar(name.toLowerCase(), service.at) });
  return { ...service, entries };
}

function withoutNetworks(spec: ServiceSpec): ServiceSpec {
  const { task } = spec;
  return task === null ? spec : ServiceSpec.patch(spec, { task: TaskSpec.patch(task, { networks: [] }) });
}

function checkCount(spec: ServiceSpec, view: View): void {
  const mode = modeOf(spec);
  const count = spec.replicated?.replicas ?? spec.replicatedJob?.totalCompletions ?? 0;
  if (mode !== null && count > replicasMax) {
    throw view.child("deploy").mistake("replicas", `must be at most ${replicasMax}`);
  }
}

/** Rehearsed nodes have names and labels only. */
function checkConstraints(spec: ServiceSpec, view: View): void {
  const placement = view.child("deploy").child("placement");
  for (const text of spec.task?.placement?.constraints ?? []) {
    const parsed = parseConstraint(text);
    if (parsed.kind === "invalid") throw placement.mistake("constraints", parsed.message);
    const { subject, isEqual, value } = parsed.constraint;
    const isOfWorkers = subject.kind === "role" && isEqual === (value === "worker");
    if (["hostname", "nodeLabel", "os", "architecture"].includes(subject.kind) || isOfWorkers) continue;
    throw placement.mistake(
      "constraints",
      `'${text}' holds on no node: rehearsed nodes are workers with a name and labels; use a label of the nodes`,
    );
  }
}
