/**
 * K1 (machines/validation/resource.ts) once more, where writes stand in one line: of a resource that is made and the removal
 * of its extension at once, whichever comes second is refused. What the cluster keeps for itself has no extension.
 */
import type { Extension, Resource } from "../../proto/gen/messages.ts";
import type { ServiceConflict } from "../orchestration/service-conflicts.ts";
import { checkExtensionRemoval, checkKind, ownKinds } from "../validation/resource.ts";

/** What is there when the write has its turn. */
export interface ResourceView {
  /** The one of that name, case aside. */
  extension(name: string): Extension | undefined;
  resources(): Iterable<Resource>;
}

export function resourceConflict(view: ResourceView, resource: Resource): ServiceConflict | null {
  if (ownKinds.has(resource.kind)) return null;
  const refusal = checkKind(resource.kind, view.extension(resource.kind));
  return refusal === null ? null : { code: "referenceMissing", message: refusal.message };
}

export function extensionRemovalConflict(view: ResourceView, extension: Extension): ServiceConflict | null {
  const refusal = checkExtensionRemoval(extension, view.resources());
  return refusal === null ? null : { code: "referenced", message: refusal.message };
}
