/** Actions of a scenario's steps, one reader for each kind. The kinds' names are the keys of the file. */
import type { Action } from "../../simulation/rehearsal/plan.ts";
import { mapping, type MappingNode, type Node } from "../stack/located.ts";
import { Fields } from "./fields.ts";
import { listed } from "./mistakes.ts";
import { choiceKeys, readChoice } from "./read-choice.ts";
import { checkNames, groupKeys, readGroup } from "./read-nodes.ts";
import { replicasMax } from "./read-service.ts";
import { readDeploy, readUpdate, withReplicas } from "./read-version.ts";
import { noService, type Before } from "./timeline.ts";

type Reader = (node: Node, path: string, step: Fields, before: Before) => Action;

/** Shortest time for which something is broken. */
const forMsMin = 1;

function fieldsOf(node: Node, path: string, step: Fields, keys: readonly string[]): Fields {
  return new Fields(node, path, keys, step.mistakes);
}

/** A required length of time. */
function forMs(fields: Fields): number {
  fields.require("for");
  return fields.ms("for", forMsMin, forMsMin);
}

function existing(fields: Fields, { timeline }: Before): string {
  const name = fields.text("service");
  fields.require("service");
  if (name === "" || timeline.has(name)) return name;
  fields.add("service", noService(name, timeline));
  return name;
}

/** Something that is broken for a time, without further settings. */
function outage(kind: "full-log" | "lose-nats" | "registry-outage"): Reader {
  return (node, path, step) => ({ kind, forMs: forMs(fieldsOf(node, path, step, ["for"])) });
}

function availability(kind: "drain" | "activate"): Reader {
  return (node, path, step, { timeline }) => {
    return { kind, nodes: readChoice(fieldsOf(node, path, step, choiceKeys), timeline) };
  };
}

const readers: { readonly [Kind in Action["kind"]]: Reader } = {
  deploy: readDeploy,
  scale(node, path, step, before) {
    const fields = fieldsOf(node, path, step, ["service", "replicas"]);
    const service = existing(fields, before);
    fields.require("replicas");
    const replicas = fields.whole("replicas", 1, [0, replicasMax]);
    const held = before.timeline.get(service);
    if (held !== undefined) {
      const scaled = withReplicas(held, replicas);
      if (scaled === null)
        fields.add("service", `'${service}' runs on every node; only replicated services can be scaled`);
      else before.timeline.scale(service, scaled);
    }
    return { kind: "scale", service, replicas };
  },
  update: readUpdate,
  rollback(node, path, step, before) {
    const fields = fieldsOf(node, path, step, ["service"]);
    const service = existing(fields, before);
    if (before.timeline.has(service) && !before.timeline.rollBack(service)) {
      fields.add("service", `'${service}' has no earlier version at this time; update it first`);
    }
    return { kind: "rollback", service };
  },
  remove(node, path, step, before) {
    const service = existing(fieldsOf(node, path, step, ["service"]), before);
    before.timeline.remove(service);
    return { kind: "remove", service };
  },
  drain: availability("drain"),
  activate: availability("activate"),
  join(node, path, step, { leftMs, timeline }) {
    const fields = fieldsOf(node, path, step, [...groupKeys, "over"]);
    const nodes = readGroup(fields);
    const isAdded = checkNames([{ nodes, node, path }], timeline.nodes, step.mistakes);
    if (isAdded) timeline.addNodes(nodes);
    const overMs = fields.ms("over", 0);
    if (overMs > leftMs) fields.add("over", "is after the end of the scenario; set a longer 'duration'");
    return { kind: "join", nodes: isAdded ? nodes : [], overMs };
  },
  "lose-nodes"(node, path, step, { timeline }) {
    const fields = fieldsOf(node, path, step, [...choiceKeys, "for"]);
    return { kind: "lose-nodes", nodes: readChoice(fields, timeline), forMs: fields.ms("for", null, forMsMin) };
  },
  "flap-nodes"(node, path, step, { timeline }) {
    const fields = fieldsOf(node, path, step, [...choiceKeys, "up", "down", "for"]);
    fields.require("up", "down");
    const [upMs, downMs] = [fields.ms("up", forMsMin, forMsMin), fields.ms("down", forMsMin, forMsMin)];
    return { kind: "flap-nodes", nodes: readChoice(fields, timeline), upMs, downMs, forMs: forMs(fields) };
  },
  "partition-nodes"(node, path, step, { timeline }) {
    const fields = fieldsOf(node, path, step, [...choiceKeys, "for"]);
    return { kind: "partition-nodes", nodes: readChoice(fields, timeline), forMs: forMs(fields) };
  },
  "partition-managers"(node, path, step, before) {
    const fields = fieldsOf(node, path, step, ["managers", "for"]);
    return { kind: "partition-managers", managers: managersOf(fields, before), forMs: forMs(fields) };
  },
  "kill-leader"(node, path, step) {
    return { kind: "kill-leader", forMs: fieldsOf(node, path, step, ["for"]).ms("for", null, forMsMin) };
  },
  "slow-log"(node, path, step) {
    const fields = fieldsOf(node, path, step, ["delay", "for"]);
    fields.require("delay");
    return { kind: "slow-log", delayMs: fields.ms("delay", forMsMin, forMsMin), forMs: forMs(fields) };
  },
  "full-log": outage("full-log"),
  "lose-nats": outage("lose-nats"),
  "registry-outage": outage("registry-outage"),
  "step-clocks"(node, path, step, before) {
    const fields = fieldsOf(node, path, step, [...choiceKeys, "manager", "by"]);
    fields.require("by");
    const byMs = fields.signedMs("by");
    if (fields.has("by") && byMs === 0) fields.add("by", "must not be 0");
    if (!fields.has("manager")) return { kind: "step-clocks", of: readChoice(fields, before.timeline), byMs };
    const other = choiceKeys.find((key) => fields.has(key));
    if (other !== undefined) fields.add(other, "cannot be combined with 'manager'; use one step for each");
    return { kind: "step-clocks", of: { manager: fields.whole("manager", 1, [1, before.managers]) }, byMs };
  },
};

/** Numbers of managers, from 1. */
function managersOf(fields: Fields, { managers }: Before): readonly number[] {
  fields.require("managers");
  const numbers = fields.texts("managers").flatMap(({ text, at, path }) => {
    const number = /^\d+$/.test(text) ? Number(text) : 0;
    if (number >= 1 && number <= managers) return [number];
    fields.mistakes.add(at, path, `must be the number of a manager, from 1 to ${managers}, not '${text}'`);
    return [];
  });
  return [...new Set(numbers)].toSorted((a, b) => a - b);
}

export const actionKinds = Object.keys(readers) as readonly Action["kind"][];

/** Null: the step has no action; a mistake is noted. */
export function readAction(step: Fields, before: Before): Action | null {
  const given = actionKinds.filter((kind) => step.keys.includes(kind));
  const [kind] = given;
  if (kind === undefined || given.length > 1) {
    // An unknown key has been reported.
    if (step.keys.some((key) => key !== "at" && !actionKinds.some((each) => each === key))) return null;
    const problem = kind === undefined ? "requires an action" : `has ${given.join(" and ")}`;
    step.mistakes.add(step.at, step.path, `${problem}; give each step exactly one of ${listed(actionKinds)}`);
    return null;
  }
  const node: Node = step.node(kind) ?? empty(step, kind);
  return readers[kind](node, step.pathOf(kind), step, before);
}

function empty(step: Fields, key: string): MappingNode {
  return mapping([], step.placeOf(key));
}
