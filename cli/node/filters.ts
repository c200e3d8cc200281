/** `muster node ls --filter`: Docker's keys. */
import { NodeRole, NodeSpec_Membership, type Node } from "../../proto/gen/messages.ts";
import { UsageError } from "../../lib/user-error.ts";
import { nodeName } from "../manager-client.ts";

export const nodeFilterKeys = ["id", "name", "role", "membership", "label", "node.label"] as const;

type Key = (typeof nodeFilterKeys)[number];

const roles: Readonly<Record<string, NodeRole>> = { worker: NodeRole.WORKER, manager: NodeRole.MANAGER };
const memberships: Readonly<Record<string, NodeSpec_Membership>> = {
  accepted: NodeSpec_Membership.ACCEPTED,
  pending: NodeSpec_Membership.PENDING,
};

function hasLabel(labels: Readonly<Record<string, string>>, wanted: string): boolean {
  const at = wanted.indexOf("=");
  const held = labels[at < 0 ? wanted : wanted.slice(0, at)];
  return held !== undefined && (at < 0 || held === wanted.slice(at + 1));
}

function meets(node: Node, key: Key, value: string): boolean {
  switch (key) {
    case "id":
      return node.id.startsWith(value);
    case "name":
      return nodeName(node).startsWith(value);
    case "role":
      return (node.spec?.desiredRole ?? NodeRole.WORKER) === roles[value];
    case "membership":
      return (node.spec?.membership ?? NodeSpec_Membership.PENDING) === memberships[value];
    case "label":
      return hasLabel(node.description?.engine?.labels ?? {}, value);
    case "node.label":
      return hasLabel(node.spec?.annotations?.labels ?? {}, value);
  }
}

function parsed(text: string): { readonly key: Key; readonly value: string } {
  const at = text.indexOf("=");
  const key = nodeFilterKeys.find((known) => known === text.slice(0, at));
  if (key === undefined) {
    throw new UsageError(`invalid filter "${text}": expected ${nodeFilterKeys.map((known) => `${known}=`).join(", ")}`);
  }
  const value = text.slice(at + 1);
  const choices = key === "role" ? roles : key === "membership" ? memberships : null;
  if (choices !== null && !Object.hasOwn(choices, value)) {
    throw new UsageError(`invalid filter "${key}=${value}": expected ${Object.keys(choices).join(" or ")}`);
  }
  return { key, value };
}

/** Values of one key are alternatives, but labels are demands, as in Docker. Throws UsageError. */
export function matchingNodes(texts: readonly string[]): (node: Node) => boolean {
  const byKey = Map.groupBy(texts.map(parsed), ({ key }) => key);
  return (node) =>
    [...byKey].every(([key, wanted]) =>
      key.endsWith("label")
        ? wanted.every(({ value }) => meets(node, key, value))
        : wanted.some(({ value }) => meets(node, key, value)),
    );
}
