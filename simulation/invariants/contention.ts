/**
 * Invariants of scarce resources, after every transaction, whatever clients request concurrently.
 *
 * S52: no two services request the same ingress port, and no service is assigned a port that another one requested.
 * S53: no service refers to a missing network, secret or config.
 * S54: there is at most one ingress network, and there is one if services publish ports.
 * S55: objects that an update in progress may roll back to are not removed.
 */
import { checkNetworkRemoval } from "../../machines/validation/network.ts";
import { checkNetworksExist, checkReferencesExist, mentions } from "../../machines/validation/reference.ts";
import { checkChosenPorts, checkPortConflicts, needsIngress } from "../../machines/validation/service.ts";
import { UpdateStatus_UpdateState, type Service } from "../../proto/gen/messages.ts";
import type { Commit, ObjectChange, Store } from "../../runtime/store/store.ts";

/** S52 to S55; checks only what the commit changed. */
export function checkContention(commit: Commit, store: Store): string | null {
  let isIngressTouched = false;
  for (const change of commit.changes) {
    if (change.table === "service" && change.action !== "remove") {
      isIngressTouched ||= change.object.spec !== null && needsIngress(change.object.spec);
      const claim = checkService(change.object, change.action === "create" ? null : change.old, store);
      if (claim !== null) return claim;
    }
    if (change.table === "network") isIngressTouched ||= change.object.spec?.ingress === true;
    if (change.action !== "remove") continue;
    const claim = checkKept(change, commit, store);
    if (claim !== null) return claim;
  }
  return isIngressTouched ? checkIngress(store) : null;
}

function checkService(service: Service, old: Service | null, store: Store): string | null {
  const { id, spec } = service;
  if (spec === null) return null;
  const taken =
    checkPortConflicts(spec, id, store.all("service")) ?? checkChosenPorts(service, old, store.all("service"));
  if (taken !== null) return `S52: service ${id}: ${taken.message}`;
  const missing =
    checkNetworksExist(
      spec,
      (target) => (store.get("network", target) ?? store.byName("network", target)) !== undefined,
    ) ??
    checkReferencesExist(
      spec,
      (secret) => store.get("secret", secret)?.spec?.annotations?.name,
      (config) => store.get("config", config)?.spec?.annotations?.name,
    );
  return missing === null ? null : `S53: service ${id}: ${missing.message}`;
}

/** S54 */
function checkIngress(store: Store): string | null {
  const ingress = [...store.all("network")].filter(({ spec }) => spec?.ingress === true);
  if (ingress.length > 1) return `S54: ${ingress.map(({ id }) => id).join(" and ")} are ingress networks`;
  if (ingress.length === 1) return null;
  for (const { id, spec } of store.all("service"))
    if (spec !== null && needsIngress(spec)) return `S54: service ${id} publishes ports without an ingress network`;
  return null;
}

/** S53 and S55, from the removed object's side. */
function checkKept(change: ObjectChange, commit: Commit, store: Store): string | null {
  const isUsed = usesOf(change);
  if (isUsed === null) return null;
  // References of services that the same transaction changes afterwards are checked there, and may be to a successor: only one
  // ingress network exists at a time.
  const later = new Set(commit.changes.slice(commit.changes.indexOf(change) + 1).map(({ object }) => object.id));
  for (const service of store.all("service")) {
    const { id, previousSpec } = service;
    if (!later.has(id) && isUsed(service))
      return `S53: service ${id} still refers to the removed ${change.table} ${change.object.id}`;
    // The same transaction may have ended or begun the update, before or after the removal.
    const touched = commit.changes.some((each) => each.table === "service" && each.object.id === id);
    if (touched || !isUnderWay(service) || previousSpec === null) continue;
    const back = { ...service, spec: previousSpec, previousSpec: null };
    if (isUsed(back))
      return `S55: the update of service ${id} cannot roll back to the removed ${change.table} ${change.object.id}`;
  }
  return null;
}

/** Null for objects that no service refers to. */
function usesOf(change: ObjectChange): ((service: Service) => boolean) | null {
  switch (change.table) {
    case "network":
      return (service) => checkNetworkRemoval(change.object, [service], () => []) !== null;
    case "secret":
    case "config":
      return ({ spec }) => mentions(spec?.task ?? null, change.table, change.object.id);
    default:
      return null;
  }
}

function isUnderWay({ updateStatus }: Service): boolean {
  const state = updateStatus?.state;
  return state === UpdateStatus_UpdateState.UPDATING || state === UpdateStatus_UpdateState.PAUSED;
}
