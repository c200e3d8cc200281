/** The object of the cluster that an actor is about, by the actor's id. */
import type { ClusterRoute } from "./route.ts";

const kinds: Readonly<Record<string, "service" | "task" | "node">> = {
  rollout: "service",
  session: "node",
  "node-watch": "node",
  "agent-task": "task",
};

/** Null: none, or one that the page does not show. */
export function objectOf(actorId: string): (ClusterRoute & { readonly id: string }) | null {
  const at = actorId.indexOf("/");
  const part = at < 0 ? undefined : kinds[actorId.slice(0, at)];
  const id = actorId.slice(at + 1);
  return part === undefined || id === "" ? null : { view: "cluster", part, id };
}
