/** A step in one line, as it is listed among the events of a run. */
import type { Action } from "./plan.ts";
import { listed } from "./listed.ts";

function seconds(ms: number): string {
  return `${Math.round(ms / 100) / 10} s`;
}

function span(ms: number | null): string {
  return ms === null ? "for good" : `for ${seconds(ms)}`;
}

/** `nodes`: names of the chosen nodes. */
export function stepText(action: Action, nodes: readonly string[]): string {
  const chosen = listed(nodes, "no node");
  switch (action.kind) {
    case "deploy":
      return `deploy service ${action.service.spec.annotations?.name ?? ""}`;
    case "scale":
      return `scale service ${action.service} to ${action.replicas}`;
    case "update":
      return `update service ${action.service.spec.annotations?.name ?? ""}`;
    case "rollback":
      return `roll back service ${action.service}`;
    case "remove":
      return `remove service ${action.service}`;
    case "drain":
      return `drain ${chosen}`;
    case "activate":
      return `activate ${chosen}`;
    case "join":
      return `${action.nodes.length} ${action.nodes.length === 1 ? "node joins" : "nodes join"} within ${seconds(action.overMs)}`;
    case "lose-nodes":
      return `${chosen} lost power ${span(action.forMs)}`;
    case "flap-nodes":
      return `power comes and goes ${span(action.forMs)}: ${chosen}`;
    case "partition-nodes":
      return `managers are cut off from ${chosen} ${span(action.forMs)}`;
    case "partition-managers":
      return `cut off ${span(action.forMs)}: ${action.managers.map((number) => `manager-${number}`).join(", ")}`;
    case "kill-leader":
      return `kill the leader ${span(action.forMs)}`;
    case "slow-log":
      return `each append to the log takes ${seconds(action.delayMs)} longer ${span(action.forMs)}`;
    case "full-log":
      return `the log's disk is full ${span(action.forMs)}`;
    case "lose-nats":
      return `NATS is down ${span(action.forMs)}`;
    case "registry-outage":
      return `the image registry is down ${span(action.forMs)}`;
    case "step-clocks":
      return `clocks step by ${seconds(action.byMs)}: ${"manager" in action.of ? `manager-${action.of.manager}` : "nodes"}`;
  }
}
