/**
 * Names of the cluster's objects in the JSON API, whose clients validate names and tags: a machine is a number; an application
 * has a name of lower-case letters and digits in parts joined by hyphens, each part with a letter. All names are derived from
 * the objects' names and ids, so every manager gives the same ones, also after a restart.
 *
 * E1: two objects of one kind have different names.
 * E2: a valid name is unchanged; an invalid one is converted to a valid one, always the same.
 */
import type { Service, Task } from "../../../proto/gen/messages.ts";

/** Bits of a machine number: below 2^53. Among 10,000 nodes a collision has a probability of 2e-7. */
const machineBits = 48;

/** A 32-bit hash (FNV-1a, with a final mix so that similar ids are far apart). */
function mixed(text: string, seed: number): number {
  let hash = seed;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
}

const basis = 0x811c9dc5;
const machineNumbers = new Map<string, string>();
/** The number of nodes of a large cluster; beyond that, the cache is cleared. */
const rememberedMax = 20_000;

/** A decimal number below 2^48, derived from the node's id. */
export function machineId(nodeId: string): string {
  let known = machineNumbers.get(nodeId);
  if (known === undefined) {
    const high = mixed(nodeId, ~basis) & (2 ** (machineBits - 32) - 1);
    known = String(high * 2 ** 32 + mixed(nodeId, basis));
    if (machineNumbers.size >= rememberedMax) machineNumbers.clear();
    machineNumbers.set(nodeId, known);
  }
  return known;
}

/** Clients parse a relation's number as an `int`. */
export function relationNumber(networkId: string): number {
  return mixed(networkId, basis) >>> 1;
}

const fits = /^[a-z][a-z0-9]*(-[a-z0-9]*[a-z][a-z0-9]*)*$/;

/** E2. A converted name ends in a hash of the original; otherwise `web_a` and `web.a` would be the same (E1). */
export function applicationName(name: string): string {
  if (fits.test(name)) return name;
  const parts = name
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((part) => part !== "")
    .map((part, at) => ((at === 0 ? /^[a-z]/ : /[a-z]/).test(part) ? part : `n${part}`));
  return [...parts, `h${mixed(name.toLowerCase(), basis).toString(36)}`].join("-");
}

/** In a tag such as `unit-web-0`, the application's name ends before the last hyphen. */
export function unitTag(unit: string): string {
  return `unit-${unit.replace("/", "-")}`;
}

export function unitOfTag(tag: string): string | null {
  const match = /^unit-(.+)-(\d+)$/.exec(tag);
  return match === null ? null : `${match[1]}/${match[2]}`;
}

export const machineTag = (machine: string): string => `machine-${machine}`;

/** Tasks of a removed service still carry its name. */
export function serviceNameOf(task: Task, service: Service | undefined): string {
  return service?.spec?.annotations?.name ?? task.serviceAnnotations?.name ?? task.serviceId;
}

/**
 * The place that a task is an attempt at: a slot, or a node of a global service. Empty for a task that is not a unit, such as a
 * container that was attached to a network.
 */
export function placeOf(task: Task): string {
  if (task.serviceId === "") return "";
  return isNodeBound(task) ? `${task.serviceId}@${task.nodeId}` : `${task.serviceId}#${task.slot}`;
}

/** The place is a node. The task name identifies slot 0 of a replicated job (same rule as in machines/task.ts). */
export function isNodeBound({ slot, annotations }: Task): boolean {
  return slot === 0 && (annotations?.name ?? "") === "";
}

/** Service slots count from 1, job slots from 0, units from 0. A global service's unit has the machine's number. */
function unitNumber(task: Task): string {
  if (isNodeBound(task)) return machineId(task.nodeId);
  return String(task.jobIteration === null ? Math.max(0, task.slot - 1) : task.slot);
}

export function unitName(task: Task, service: Service | undefined): string {
  return `${applicationName(serviceNameOf(task, service))}/${unitNumber(task)}`;
}
