/**
 * Conflicts between concurrent writers, checked again where writes are serialized (the ledger): published ports, referenced
 * networks, secrets and configs, and the single ingress network. SwarmKit checks only before it writes, so two simultaneous
 * creates both pass, and the loser is never allocated.
 */
import type { Config, Network, Secret, Service, Task } from "../../proto/gen/messages.ts";
import { isSameMessage } from "../same-message.ts";
import { checkSingleIngress, checkNetworkRemoval } from "../validation/network.ts";
import { checkNetworksExist, checkReferencesExist, mentionsSame } from "../validation/reference.ts";
import { checkNotReferenced } from "../validation/secret.ts";
import { checkChosenPorts, checkIngressExists, checkPortConflicts, checkTaskNetworks } from "../validation/service.ts";

/** The stored objects when the write is applied. */
export interface ServiceView {
  services(): Iterable<Service>;
  tasksOf(serviceId: string): Iterable<Task>;
  networks(): Iterable<Network>;
  /** The network with this id, or else with this name. */
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
 * `before`: null for a new service. Checks only what changes. A rollback is checked like any other change: a rollout that
 * cannot be rolled back pauses with the reason, instead of getting stuck.
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

/** Refuses the second of two ingress networks that are created simultaneously. */
export function networkConflict(view: ServiceView, { spec }: Network): ServiceConflict | null {
  const refusal = spec === null ? null : checkSingleIngress(spec, view.networks());
  return refusal === null ? null : { code: "exists", message: refusal.message };
}

/** The reverse: refuses to remove objects that a service references, or may be rolled back to. */
export function removalConflict(view: ServiceView, removed: RemovedObject): ServiceConflict | null {
  const tasksOf = (serviceId: string): Iterable<Task> => view.tasksOf(serviceId);
  if (removed.table === "network") {
    const refusal = checkNetworkRemoval(removed.object, view.services(), tasksOf);
    return refusal === null ? null : { code: "inUse", message: refusal.message };
  }
  const refusal = checkNotReferenced(removed.table, removed.object, view.services(), tasksOf);
  return refusal === null ? null : { code: "referenced", message: refusal.message };
}
