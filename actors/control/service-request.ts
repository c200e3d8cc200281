/**
 * Checks a request to create, update or roll back a service in SwarmKit's order, and builds the service to store. Used by the
 * methods that write it and by the plan that only shows it. Each function throws RpcError.
 */
import { firstRefusal, invalid, refuse } from "../../machines/refusal.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import { recordOf } from "../../machines/orchestration/rollout/status.ts";
import { newService, rolledBackService, updatedService } from "../../machines/orchestration/service-update.ts";
import { checkNetworksExist, checkReferencesExist } from "../../machines/validation/reference.ts";
import {
  checkIngressExists,
  checkPortConflicts,
  checkServiceSpec,
  checkServiceUpdate,
  checkTaskNetworks,
} from "../../machines/validation/service.ts";
import type { Network, Service, ServiceSpec, Version } from "../../proto/gen/messages.ts";
import type { RpcError } from "../../runtime/ports/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Environment } from "../environment.ts";
import { demand, rejection } from "./answer.ts";
import { checkDriverConfig } from "./driver-config.ts";

type RequestEnvironment = Pick<Environment, "store" | "clock">;

export function checkedSpec(spec: ServiceSpec | null): ServiceSpec {
  demand(checkServiceSpec(spec));
  if (spec === null) throw rejection(invalid("invalid argument"));
  return spec;
}

export function nameConflict(name: string): RpcError {
  return rejection(refuse("already-exists", `name conflicts with an existing object: service ${name} already exists`));
}

/** `id`: called once all checks have passed. */
export function createdService({ clock, store }: RequestEnvironment, spec: ServiceSpec, id: () => string): Service {
  checkSurroundings(store, spec, "", null);
  const name = spec.annotations?.name ?? "";
  if (store.byName("service", name) !== undefined) throw nameConflict(name);
  return newService(id(), spec, clock.now());
}

/** `version`: version of the service that the caller read. */
export function changedService(
  { clock, store }: RequestEnvironment,
  before: Service,
  spec: ServiceSpec,
  version: Version,
): Service {
  demand(checkServiceUpdate(before, spec));
  checkSurroundings(store, spec, before.id, before.spec);
  const record = recordOf(before, store.get("rollout", before.id));
  return updatedService(before, spec, version, clock.now(), record);
}

export function restoredService({ clock, store }: RequestEnvironment, before: Service): Service {
  const back = rolledBackService(before, clock.now());
  if (back.kind === "refused") throw rejection(back.refusal);
  // Other objects may conflict with the previous spec by now.
  if (back.service.spec !== null) checkSurroundings(store, back.service.spec, before.id, before.spec);
  return back.service;
}

/** Checks 10 to 13 of SwarmKit's order: those that depend on other objects. Parts that an update keeps are not checked. */
function checkSurroundings(store: Store, spec: ServiceSpec, id: string, before: ServiceSpec | null): void {
  const nameIn = (table: "secret" | "config") => (object: string) => store.get(table, object)?.spec?.annotations?.name;
  const arePortsKept = before !== null && isSameMessage(spec.endpoint, before.endpoint);
  const areNetworksKept =
    before !== null &&
    isSameMessage(spec.task?.networks, before.task?.networks) &&
    isSameMessage(spec.networks, before.networks);
  demand(
    firstRefusal(
      () => checkTaskNetworks(spec, (target) => networkOf(store, target)),
      () => (areNetworksKept ? null : checkNetworksExist(spec, (target) => networkOf(store, target) !== undefined)),
      () => (arePortsKept ? null : checkPortConflicts(spec, id, store.all("service"))),
      () => checkIngressExists(spec, () => store.all("network")),
      () => checkReferencesExist(spec, nameIn("secret"), nameIn("config")),
      () => checkDriverConfig(spec, before, () => store.all("node")),
    ),
  );
}

/** By id, else by name. */
function networkOf(store: Store, target: string): Network | undefined {
  return target === "" ? undefined : (store.get("network", target) ?? store.byName("network", target));
}
