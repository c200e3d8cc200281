/**
 * What two writers could each have found free and both take, looked at once more where writes stand in one line (the
 * ledger): ports that services publish, the networks, secrets and configs that they name, and the one ingress network.
 * SwarmKit looks only before it writes, so that two creates at once both pass, and the loser is never allocated.
 */
import type { Config, Network, Secret, Service, Task } from "../../proto/gen/messages.ts";
import { isSameMessage } from "../same-message.ts";
import { checkSingleIngress, checkNetworkRemoval } from "../validation/network.ts";
import { checkNetworksExist, checkReferencesExist, mentionsSame } from "../validation/reference.ts";
import { checkNotReferenced } from "../validation/secret.ts";
import { checkChosenPorts, checkIngressExists, checkPortConflicts, checkTaskNetworks } from "../validation/service.ts";

/** What is there when the write has its turn. */
export interface ServiceView {
  services(): Iterable<Service>;
  tasksOf(serviceId: string): Iterable<Task>;
  networks(): Iterable<Network>;
  /** The network with this id, else the one with this name. */
  network(target: string): Network | undefined;
  get(table: "secret", id: string): Secret | undefined;
  get(table: "config", id: string): Config | undefined;
}

export interface ServiceConflict {
  readonly code: "exists" | "portTaken" | "referenceMissing" | "ingressMissing" | "inUse" | "referenced";
  readonly message: string;
}

export type RemovedObject =
  | { readonly table: "network"; readonly object: Network }
  | { readonly table: "secret"; readonly object: Secret }
  | { readonly table: "config"; readonly object: Config };

/**
 * `before`: null for a service that is created. Only what changes is looked at. A rollback is checked like any other
 * change: a rollout that cannot go back pauses and says why, where it would otherwise be stuck half-way.
 */
export function serviceConflict(view: ServiceView, next: Service, before: Service | null): ServiceConflict | null {
  const { spec } = next;
  if (spec === null) return null;
  const old = before?.spec ?? null;
  const arePortsKept = old !== null && isSameMessage(spec.endpoint, old.endpoint);
  const taken =
    (arePortsKept ? null : checkPortConflicts(spec, next.id, view.services())) ??
    checkChosenPorts(next, before, view.services());
  if (taken !== null) return { code: "portTaken", message: taken.message };
  const unserved = arePortsKept ? null : checkIngressExists(spec, () => view.networks());
  if (unserved !== null) return { code: "ingressMissing", message: unserved.message };
  const isSameNetworks =
    old !== null &&
    isSameMessage(spec.task?.networks, old.task?.networks) &&
    isSameMessage(spec.networks, old.networks);
  const networkOf = (target: string): Network | undefined => view.network(target);
  const missing = isSameNetworks
    ? null
    : (checkTaskNetworks(spec, networkOf) ?? checkNetworksExist(spec, (target) => networkOf(target) !== undefined));
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

/** Of two ingress networks that are created at once the second is refused. */
export function networkConflict(view: ServiceView, { spec }: Network): ServiceConflict | null {
  const refusal = spec === null ? null : checkSingleIngress(spec, view.networks());
  return refusal === null ? null : { code: "exists", message: refusal.message };
}

/** The other side: what a service names meanwhile, or may be rolled back to, is not removed. */
export function removalConflict(view: ServiceView, removed: RemovedObject): ServiceConflict | null {
  const tasksOf = (serviceId: string): Iterable<Task> => view.tasksOf(serviceId);
  if (removed.table === "network") {
    const refusal = checkNetworkRemoval(removed.object, view.services(), tasksOf);
    return refusal === null ? null : { code: "inUse", message: refusal.message };
  }
  const refusal = checkNotReferenced(removed.table, removed.object, view.services(), tasksOf);
  return refusal === null ? null : { code: "referenced", message: refusal.message };
}
