/**
 * Checks of extensions (kinds of objects that the cluster stores for others) and resources (such objects) before they are
 * created, updated and removed.
 *
 * K1: each resource is of a registered kind: an extension cannot be removed while resources of its kind exist. The ledger
 *     checks this again, so it also holds for concurrent writers.
 */
import type { Annotations, Extension, Resource } from "../../proto/gen/messages.ts";
import { scheduleKind } from "../orchestration/jobs/runs.ts";
import { reportKind } from "../policy/objects.ts";
import { invalid, refuse, type Refusal } from "../refusal.ts";

/** Kinds that the cluster reserves for itself: they have no extension, and clients cannot create objects of them. */
export const ownKinds: ReadonlySet<string> = new Set([scheduleKind, reportKind]);

/** How many of the resources that use an extension the error names (SwarmKit's). */
const namedMax = 10;

/** `builtIn`: the built-in kinds, in lower case; names are compared case-insensitively. */
export function checkExtension(annotations: Annotations | null, builtIn: readonly string[]): Refusal | null {
  const name = annotations?.name ?? "";
  if (name === "") return invalid("extension name must be provided");
  // SwarmKit has the same message for built-in kinds as for a name in use.
  const isTaken = builtIn.includes(name.toLowerCase()) || ownKinds.has(name.toLowerCase());
  return isTaken ? refuse("already-exists", `extension ${name} already exists`) : null;
}

/** `resources`: all resources. */
export function checkExtensionRemoval(extension: Extension, resources: Iterable<Resource>): Refusal | null {
  const kind = extension.annotations?.name ?? "";
  const names: string[] = [];
  for (const resource of resources) if (isOfKind(resource, kind)) names.push(resource.annotations?.name ?? "");
  if (names.length === 0) return null;
  const noun = names.length > 1 ? "resources" : "resource";
  const shown = names.toSorted().slice(0, namedMax).join(", ");
  return invalid(`extension '${kind}' is in use by the following ${noun}: ${shown}`);
}

/** Case-insensitive, like the lookup of extensions by name. */
function isOfKind(resource: Resource, kind: string): boolean {
  return resource.kind.toLowerCase() === kind.toLowerCase();
}

/** `extension`: the extension of that name, if it exists. */
export function checkKind(kind: string, extension: Extension | undefined): Refusal | null {
  return extension === undefined ? invalid(`Kind ${kind} is not registered`) : null;
}

export function checkResource(
  annotations: Annotations | null,
  kind: string,
  extension: Extension | undefined,
): Refusal | null {
  if ((annotations?.name ?? "") === "") return invalid("Resource must have a name");
  if (kind === "") return invalid("Resource must belong to an Extension");
  return checkKind(kind, extension);
}

/** `annotations`: null when unchanged. */
export function checkResourceUpdate(
  before: Resource,
  annotations: Annotations | null,
  extension: Extension | undefined,
): Refusal | null {
  if (annotations !== null && annotations.name !== (before.annotations?.name ?? "")) {
    return invalid("cannot change resource name");
  }
  return checkKind(before.kind, extension);
}
