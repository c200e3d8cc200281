/**
 * K1 (machines/validation/resource.ts) again, where writes are serialised: if a resource is created while its extension is
 * being removed, the later of the two is refused. The cluster's own resources have no extension.
 */
import type { Extension, Resource } from "../../proto/gen/messages.ts";
import type { ServiceConflict } from "../orchestration/service-conflicts.ts";
import { checkExtensionRemoval, checkKind, ownKinds } from "../validation/resource.ts";

/** The state at the write's turn. */
export interface ResourceView {
  /** The extension with that name, ignoring case. */
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
