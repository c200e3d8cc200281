/**
 * What the cluster's objects are called in the JSON API. Its clients check names and tags against rules of their own: a
 * machine is a number, an application's name has parts of small letters and digits joined by hyphens, each with a letter.
 * Everything here is worked out from names and ids alone, so that each manager answers the same, also after a restart.
 *
 * E1: two objects of one kind have two names.
 * E2: a name that fits stays as it is; one that does not becomes one that does, always the same.
 */
import type { Service, Task } from "../../../proto/gen/messages.ts";

/** Bits of a machine's number: below 2^53, and of 10,000 nodes two meet with a probability of 2e-7. */
const machineBits = 48;

/** 32 bits of a text, well mixed (FNV-1a, and a last stir so that alike ids are far apart). */
function mixed(text: string, seed: number): number {
  let hash = seed;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
}

const basis = 0x811c9dc5;
const machineNumbers = new Map<string, string>();
/** As many as a large cluster has nodes; beyond, all are worked out anew. */
const rememberedMax = 20_000;

/** A decimal number below 2^48, the same for as long as the node has its id. */
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

/** What clients take for the number of a relation, an `int`. */
export function relationNumber(networkId: string): number {
  return mixed(networkId, basis) >>> 1;
}

const fits = /^[a-z][a-z0-9]*(-[a-z0-9]*[a-z][a-z0-9]*)*$/;

/** E2. What is rewritten ends in a mark made of the whole name, or `web_a` and `web.a` would be one (E1). */
export function applicationName(name: string): string {
  if (fits.test(name)) return name;
  const parts = name
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((part) => part !== "")
    .map((part, at) => ((at === 0 ? /^[a-z]/ : /[a-z]/).test(part) ? part : `n${part}`));
  return [...parts, `h${mixed(name.toLowerCase(), basis).toString(36)}`].join("-");
}

/** Tags name units as `unit-web-0`: what is before the last hyphen is the application's. */
export function unitTag(unit: string): string {
  return `unit-${unit.replace("/", "-")}`;
}

export function unitOfTag(tag: string): string | null {
  const match = /^unit-(.+)-(\d+)$/.exec(tag);
  return match === null ? null : `${match[1]}/${match[2]}`;
}

export const machineTag = (machine: string): string => `machine-${machine}`;

/** Of a service that is gone its tasks still know the name. */
export function serviceNameOf(task: Task, service: Service | undefined): string {
  return service?.spec?.annotations?.name ?? task.serviceAnnotations?.name ?? task.serviceId;
}

/**
 * The place that a task is an attempt at: a slot, or for a global service a node. Empty for what is no unit: a container
 * that somebody attached to a network.
 */
export function placeOf(task: Task): string {
  if (task.serviceId === "") return "";
  return isNodeBound(task) ? `${task.serviceId}@${task.nodeId}` : `${task.serviceId}#${task.slot}`;
}

/** Its place is its node. Slot 0 of a replicated job is told apart by its own name (machines/task.ts has the same rule). */
export function isNodeBound({ slot, annotations }: Task): boolean {
  return slot === 0 && (annotations?.name ?? "") === "";
}

/** Slots of services count from 1, those of jobs from 0; units from 0. On a global service's node the unit has the machine's number. */
function unitNumber(task: Task): string {
  if (isNodeBound(task)) return machineId(task.nodeId);
  return String(task.jobIteration === null ? Math.max(0, task.slot - 1) : task.slot);
}

export function unitName(task: Task, service: Service | undefined): string {
  return `${applicationName(serviceNameOf(task, service))}/${unitNumber(task)}`;
}
