/**
 * What two writers could each have found free and both take, looked at once more where writes stand in one line (the
 * ledger): ports that services publish, and the networks, secrets and configs that they name. SwarmKit looks only before it writes, so that two
 * creates at once both pass, and the loser is never allocated.
 */
import {
  UpdateStatus_UpdateState,
  type Config,
  type Network,
  type Secret,
  type Service,
} from "../../proto/gen/messages.ts";
import { isSameMessage } from "../same-message.ts";
import { checkNetworkRemoval } from "../validation/network.ts";
import { checkNetworksExist, checkReferencesExist, mentionsSame } from "../validation/reference.ts";
import { checkNotReferenced } from "../validation/secret.ts";
import { checkPortConflicts } from "../validation/service.ts";

/** What is there when the write has its turn. */
export interface ServiceView {
  services(): Iterable<Service>;
  /** The network with this id, else the one with this name. */
  network(target: string): Network | undefined;
  get(table: "secret", id: string): Secret | undefined;
  get(table: "config", id: string): Config | undefined;
}

export interface ServiceConflict {
  readonly code: "portTaken" | "referenceMissing" | "inUse" | "referenced";
  readonly message: string;
}

export type RemovedObject =
  | { readonly table: "network"; readonly object: Network }
  | { readonly table: "secret"; readonly object: Secret }
  | { readonly table: "config"; readonly object: Config };

/**
 * `before`: null for a service that is created. Only what changes is looked at; and the way back to a spec that was
 * accepted once is left to the rollout, which would otherwise be stuck half-way.
 */
export function serviceConflict(view: ServiceView, next: Service, before: Service | null): ServiceConflict | null {
  const { spec } = next;
  if (spec === null || next.updateStatus?.state === UpdateStatus_UpdateState.ROLLBACK_STARTED) return null;
  const old = before?.spec ?? null;
  if (old === null || !isSameMessage(spec.endpoint, old.endpoint)) {
    const taken = checkPortConflicts(spec, next.id, view.services());
    if (taken !== null) return { code: "portTaken", message: taken.message };
  }
  const isSameNetworks =
    old !== null &&
    isSameMessage(spec.task?.networks, old.task?.networks) &&
    isSameMessage(spec.networks, old.networks);
  const missing = isSameNetworks ? null : checkNetworksExist(spec, (target) => view.network(target) !== undefined);
  if (missing !== null) return { code: "referenceMissing", message: missing.message };
  const lost =
    old !== null && mentionsSame(spec, old)
      ? null
      : checkReferencesExist(
          spec,
          (id) => view.get("secret", id)?.spec?.annotations?.name,
          (id) => view.get("config", id)?.spec?.annotations?.name,
        );
  return lost === null ? null : { code: "referenceMissing", message: lost.message };
}

/** The other side: what a service names meanwhile is not removed. */
export function removalConflict(view: ServiceView, removed: RemovedObject): ServiceConflict | null {
  if (removed.table === "network") {
    const refusal = checkNetworkRemoval(removed.object, view.services(), []);
    return refusal === null ? null : { code: "inUse", message: refusal.message };
  }
  const refusal = checkNotReferenced(removed.table, removed.object, view.services());
  return refusal === null ? null : { code: "referenced", message: refusal.message };
}
