/** Predicates on a node object. */
import { namesFormat } from "./agent/session-format.ts";
import {
  EngineDescription,
  NodeDescription,
  NodeSpec_Availability,
  NodeStatus_State,
  type Node,
} from "../proto/gen/messages.ts";

export function isReady(node: Node | null | undefined): boolean {
  return node?.status?.state === NodeStatus_State.READY;
}

/** Whether it is a stock engine: agents name their format, or, up to 0.1.0, their drivers. */
export function isStockEngine({ description }: Node): boolean {
  const { engineVersion = "", labels = {}, plugins = [] } = description?.engine ?? {};
  return engineVersion !== "" && !namesFormat(labels) && !plugins.some(({ type }) => type === "Driver");
}

/** The node exists and is not DOWN: what runs on it still counts. */
export function isLive(node: Node | undefined): node is Node {
  return node !== undefined && node.status?.state !== NodeStatus_State.DOWN;
}

/** Engine label with the name of the node's site. */
export const siteLabel = "site";

/** The node's site, as its sealed link proves it, or `muster agent --site` or its engine's configuration names it; empty: none. */
export function siteOf(node: Node): string {
  return node.description?.engine?.labels[siteLabel] ?? "";
}

/** A description as its node sent it, at the site that its connection proves; undefined: none is proved. */
export function describedAt(description: NodeDescription | null, site: string | undefined): NodeDescription | null {
  if (description === null || site === undefined) return description;
  const engine = description.engine ?? EngineDescription.create();
  return NodeDescription.patch(description, {
    engine: EngineDescription.patch(engine, { labels: { ...engine.labels, [siteLabel]: site } }),
  });
}

/** Neither paused nor drained. */
export function isActive(node: Node): boolean {
  return (node.spec?.availability ?? NodeSpec_Availability.ACTIVE) === NodeSpec_Availability.ACTIVE;
}

export function isDrained(node: Node | undefined): boolean {
  return node?.spec?.availability === NodeSpec_Availability.DRAIN;
}

/** The node accepts new tasks. */
export function takesTasks(node: Node): boolean {
  return isReady(node) && isActive(node);
}
