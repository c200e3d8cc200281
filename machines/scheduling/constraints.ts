/**
 * Placement constraints: `key==value` and `key!=value`. All constraints of a placement must hold. Whole values are compared,
 * case-insensitively. A missing value is the empty string, so `!=` holds for nodes without the label.
 */
import { NodeRole, type Node, type Placement } from "../../proto/gen/messages.ts";
import { siteOf } from "../node.ts";
import { containsAddress, parseAddress, parseCidr, type Address, type Prefix } from "../../lib/ip-address.ts";

type Subject =
  | { readonly kind: "id" | "hostname" | "role" | "site" | "os" | "architecture" }
  | { readonly kind: "nodeLabel" | "engineLabel"; readonly label: string }
  | { readonly kind: "ip"; readonly prefix: Prefix }
  /** An unknown key or an invalid address: holds on no node, not even with `!=`. */
  | { readonly kind: "nothing" };

export interface Constraint {
  readonly text: string;
  readonly subject: Subject;
  readonly isEqual: boolean;
  /** In lower case. */
  readonly value: string;
}

type ParsedConstraint =
  | { readonly kind: "constraint"; readonly constraint: Constraint }
  | { readonly kind: "invalid"; readonly message: string };

const keyPattern = /^[a-z_][a-z0-9._-]+$/i;
const valuePattern = /^[a-z0-9:_\s.*()?+[\]\\^$|/-]+$/i;
const nodeLabelPrefix = "node.labels.";
const engineLabelPrefix = "engine.labels.";

/** Messages are SwarmKit's. */
export function parseConstraint(text: string): ParsedConstraint {
  // `==` takes precedence, even over an earlier `!=`.
  const operator = text.includes("==") ? "==" : text.includes("!=") ? "!=" : null;
  if (operator === null) return { kind: "invalid", message: "constraint expected one operator from ==, !=" };
  const at = text.indexOf(operator);
  const key = text.slice(0, at).trim();
  const value = text.slice(at + operator.length).trim();
  if (!keyPattern.test(key)) return { kind: "invalid", message: `key '${key}' is invalid` };
  if (!valuePattern.test(value)) return { kind: "invalid", message: `value '${value}' is invalid` };
  const constraint = { text, subject: subjectOf(key, value), isEqual: operator === "==", value: value.toLowerCase() };
  return { kind: "constraint", constraint };
}

/** Keys are case-insensitive, label names are not. */
function subjectOf(key: string, value: string): Subject {
  const lower = key.toLowerCase();
  switch (lower) {
    case "node.id":
      return { kind: "id" };
    case "node.hostname":
      return { kind: "hostname" };
    case "node.role":
      return { kind: "role" };
    case "node.site":
      return { kind: "site" };
    case "node.platform.os":
      return { kind: "os" };
    case "node.platform.arch":
      return { kind: "architecture" };
    case "node.ip": {
      const prefix = parsePrefix(value);
      return prefix === null ? { kind: "nothing" } : { kind: "ip", prefix };
    }
  }
  // A key without the label's name is unknown.
  if (lower === nodeLabelPrefix || lower === engineLabelPrefix) return { kind: "nothing" };
  if (lower.startsWith(nodeLabelPrefix)) return { kind: "nodeLabel", label: key.slice(nodeLabelPrefix.length) };
  if (lower.startsWith(engineLabelPrefix)) return { kind: "engineLabel", label: key.slice(engineLabelPrefix.length) };
  return { kind: "nothing" };
}

function parsePrefix(text: string): Prefix | null {
  if (text.includes("/")) return parseCidr(text);
  const address = parseAddress(text);
  return address === null ? null : { ...address, length: address.family === 4 ? 32 : 128 };
}

/** A dual-stack socket reports a node's IPv4 address in IPv6 notation. */
function nodeAddress(node: Node): Address | null {
  return parseAddress((node.status?.addr ?? "").replace(/^::ffff:(?=\d+\.)/i, ""));
}

export function meetsConstraint({ subject, isEqual, value }: Constraint, node: Node): boolean {
  switch (subject.kind) {
    case "nothing":
      return false;
    case "ip": {
      const address = nodeAddress(node);
      return (address !== null && containsAddress(subject.prefix, address)) === isEqual;
    }
    default:
      return (textOf(subject, node).toLowerCase() === value) === isEqual;
  }
}

function textOf(subject: Exclude<Subject, { kind: "nothing" | "ip" }>, node: Node): string {
  switch (subject.kind) {
    case "id":
      return node.id;
    case "hostname":
      return node.description?.hostname ?? "";
    case "role":
      return node.role === NodeRole.MANAGER ? "manager" : "worker";
    case "site":
      return siteOf(node);
    case "os":
      return node.description?.platform?.os ?? "";
    case "architecture":
      return node.description?.platform?.architecture ?? "";
    case "nodeLabel":
      return node.spec?.annotations?.labels[subject.label] ?? "";
    case "engineLabel":
      return node.description?.engine?.labels[subject.label] ?? "";
  }
}

/** Cached by placement, which all tasks of a spec share. */
const parsed = new WeakMap<Placement, readonly Constraint[]>();
const none: readonly Constraint[] = [];

/** Control refuses constraints that do not parse; if one is stored anyway, it holds on no node. */
export function constraintsOf(placement: Placement | null): readonly Constraint[] {
  if (placement === null || placement.constraints.length === 0) return none;
  let constraints = parsed.get(placement);
  if (constraints === undefined) {
    constraints = placement.constraints.map((text) => {
      const outcome = parseConstraint(text);
      if (outcome.kind === "constraint") return outcome.constraint;
      return { text, subject: { kind: "nothing" }, isEqual: true, value: "" };
    });
    parsed.set(placement, constraints);
  }
  return constraints;
}

/** Whether the node meets all constraints of the placement; other filters are not checked. */
export function meetsPlacement(placement: Placement | null, node: Node): boolean {
  for (const constraint of constraintsOf(placement)) if (!meetsConstraint(constraint, node)) return false;
  return true;
}
