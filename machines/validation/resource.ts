/**
 * Whether kinds of objects that the cluster keeps for others (extensions), and such objects (resources), may be, change and
 * go.
 *
 * K1: each resource is of a kind that is registered: its extension stays while there is one. The ledger looks again, so
 *     that this holds for two writers at once too.
 */
import type { Annotations, Extension, Resource } from "../../proto/gen/messages.ts";
import { scheduleKind } from "../orchestration/jobs/runs.ts";
import { reportKind } from "../policy/objects.ts";
import { invalid, refuse, type Refusal } from "../refusal.ts";

/** Kinds that the cluster keeps for itself: no extension stands for them, and no client makes objects of them. */
export const ownKinds: ReadonlySet<string> = new Set([scheduleKind, reportKind]);

/** SwarmKit's: of the resources that hold an extension no more are named. */
const namedMax = 10;

/** `builtIn`: the kinds that there are anyway; case does not matter. */
export function checkExtension(annotations: Annotations | null, builtIn: readonly string[]): Refusal | null {
  const name = annotations?.name ?? "";
  if (name === "") return invalid("extension name must be provided");
  // SwarmKit says the same of these as of a name that is taken.
  const isTaken = builtIn.includes(name.toLowerCase()) || ownKinds.has(name.toLowerCase());
  return isTaken ? refuse("already-exists", `extension ${name} already exists`) : null;
}

/** `resources`: all that there are. */
export function checkExtensionRemoval(extension: Extension, resources: Iterable<Resource>): Refusal | null {
  const kind = extension.annotations?.name ?? "";
  const names: string[] = [];
  for (const resource of resources) if (isOfKind(resource, kind)) names.push(resource.annotations?.name ?? "");
  if (names.length === 0) return null;
  const noun = names.length > 1 ? "resources" : "resource";
  const shown = names.toSorted().slice(0, namedMax).join(", ");
  return invalid(`extension '${kind}' is in use by the following ${noun}: ${shown}`);
}

/** As extensions are found by name: case does not matter. */
function isOfKind(resource: Resource, kind: string): boolean {
  return resource.kind.toLowerCase() === kind.toLowerCase();
}

/** `extension`: the one of that name, if there is one. */
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

/** `annotations`: null when they stay. */
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
