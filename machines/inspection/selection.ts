/** Which processes and actors a listener of the live feed wants. */
import type { ActorSelection } from "../../proto/gen/messages.ts";

/** Maximum processes and actors that one selection may name: a name costs a comparison for each step. Beyond: refused. */
export const selectionNamesMax = 1_000;
/** Maximum characters of each; ids of actors are shorter. */
const nameCharsMax = 256;

/** Names of processes in the feed. */
export const managerProcess = (managerId: string): string => `manager-${managerId}`;
export const nodeProcess = (nodeId: string): string => `node-${nodeId}`;

/** The id of the manager or node that a process belongs to; null for another name. */
export function partsOf(process: string): { readonly kind: "manager" | "node"; readonly id: string } | null {
  const found = /^(manager|node)-([A-Za-z0-9_-]+)$/.exec(process);
  return found === null ? null : { kind: found[1] as "manager" | "node", id: found[2] ?? "" };
}

/** Why nothing can match; null if something can. `isKnown`: whether the cluster has that manager or node. */
export function selectionProblem(
  { actors, processes }: ActorSelection,
  isKnown: (kind: "manager" | "node", id: string) => boolean,
): string | null {
  for (const names of [processes, actors]) {
    if (names.length > selectionNamesMax)
      return `too many names in the selection: ${names.length}, limit ${selectionNamesMax}; select all instead`;
    if (names.some((name) => name === "")) return "a name in the selection is empty";
    if (names.some(({ length }) => length > nameCharsMax))
      return `a name in the selection is longer than ${nameCharsMax} characters`;
  }
  for (const name of processes) {
    const parts = partsOf(name);
    if (parts === null) return `'${name}' is not the name of a process: use manager-ID or node-ID`;
    if (!isKnown(parts.kind, parts.id)) return `the cluster has no ${parts.kind} '${parts.id}'`;
  }
  for (const name of actors)
    if (/\s/.test(name))
      return `'${name}' is not the id of an actor: use an id such as session/n1, or session/ for all`;
  return null;
}

/** Whether the process is among the selected ones. */
export function isSelectedProcess({ managersOnly, processes }: ActorSelection, process: string): boolean {
  if (processes.length > 0) return processes.includes(process);
  return !managersOnly || process.startsWith("manager-");
}
