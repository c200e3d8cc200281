/**
 * Control's service methods.
 *
 * C1: of two services that want the same port, one is refused. Checked here, where the answer names the other service,
 *     and once more by the ledger (machines/service-conflicts.ts), so that it holds for two managers too.
 */
import { matchesService } from "../../machines/list-filters.ts";
import { isIngress } from "../../machines/validation/network.ts";
import { checkNetworksExist, checkReferencesExist } from "../../machines/validation/reference.ts";
import { firstRefusal, invalid, refuse } from "../../machines/refusal.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import { withDefaults } from "../../machines/service-defaults.ts";
import { countTasks } from "../../machines/service-status.ts";
import { newService, rolledBackService, updatedService } from "../../machines/service-update.ts";
import {
  checkIngressExists,
  checkPortConflicts,
  checkServiceSpec,
  checkServiceUpdate,
  checkTaskNetworks,
  type IngressLookup,
} from "../../machines/validation/service.ts";
import {
  CreateServiceResponse,
  GetServiceResponse,
  ListServiceStatusesResponse,
  ListServiceStatusesResponse_ServiceStatus,
  ListServicesResponse,
  RemoveServiceResponse,
  UpdateServiceRequest_Rollback,
  UpdateServiceResponse,
  type Network,
  type Service,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status } from "../../runtime/rpc.ts";
import type { Environment } from "../environment.ts";
import { demand, demandGiven, notFound, rejection } from "./answer.ts";
import type { ControlHandlers } from "./handlers.ts";
import { atVersion, commit, creation, removal, replacement, stored } from "./write.ts";

type ServiceMethods = Pick<
  ControlHandlers,
  "GetService" | "ListServices" | "CreateService" | "UpdateService" | "RemoveService" | "ListServiceStatuses"
>;

export function serviceHandlers(env: Environment): ServiceMethods {
  const { store } = env;
  const random = env.random.fork("control/services");

  function serviceOf(id: string): Service {
    demandGiven(id);
    const service = store.get("service", id);
    if (service === undefined) throw notFound("service", id);
    return service;
  }

  function ingress(): IngressLookup {
    const networks = [...store.all("network")].filter(isIngress);
    return {
      hasIngress: networks.length > 0,
      ingressNameFor: (target) => {
        const name = (network: (typeof networks)[number]): string => network.spec?.annotations?.name ?? "";
        const found = networks.find((network) => network.id === target || name(network) === target);
        return found === undefined ? null : name(found);
      },
    };
  }

  /** By id, else by name. */
  function networkOf(target: string): Network | undefined {
    return target === "" ? undefined : (store.get("network", target) ?? store.byName("network", target));
  }

  /** Checks 10 to 13 of SwarmKit's order: everything that depends on what else exists. What an update keeps is not looked at. */
  function checkSurroundings(spec: ServiceSpec, id: string, before: ServiceSpec | null): void {
    const lookup = ingress();
    const nameIn = (table: "secret" | "config") => (object: string) =>
      store.get(table, object)?.spec?.annotations?.name;
    const arePortsKept = before !== null && isSameMessage(spec.endpoint, before.endpoint);
    const areNetworksKept =
      before !== null &&
      isSameMessage(spec.task?.networks, before.task?.networks) &&
      isSameMessage(spec.networks, before.networks);
    demand(
      firstRefusal(
        () => checkTaskNetworks(spec, lookup),
        () => (areNetworksKept ? null : checkNetworksExist(spec, (target) => networkOf(target) !== undefined)),
        () => (arePortsKept ? null : checkPortConflicts(spec, id, store.all("service"))),
        () => checkIngressExists(spec, lookup),
        () => checkReferencesExist(spec, nameIn("secret"), nameIn("config")),
      ),
    );
  }

  function nameConflict(name: string): RpcError {
    return rejection(
      refuse("already-exists", `name conflicts with an existing object: service ${name} already exists`),
    );
  }

  async function create(spec: ServiceSpec, call: Parameters<ServiceMethods["CreateService"]>[1]): Promise<Service> {
    checkSurroundings(spec, "", null);
    const name = spec.annotations?.name ?? "";
    if (store.byName("service", name) !== undefined) throw nameConflict(name);
    const service = newService(newId(random), spec, env.clock.now());
    try {
      await commit(env, call, creation("service", service));
    } catch (error) {
      if (error instanceof RpcError && error.code === Status.ALREADY_EXISTS) throw nameConflict(name);
      throw error;
    }
    return stored(env, "service", service);
  }

  return {
    GetService({ serviceId, insertDefaults }) {
      const service = serviceOf(serviceId);
      return GetServiceResponse.create({ service: insertDefaults ? withDefaults(service) : service });
    },

    ListServices({ filters }) {
      const services: Service[] = [];
      for (const service of store.all("service")) {
        if (filters === null || matchesService(filters, service)) services.push(service);
      }
      return ListServicesResponse.create({ services });
    },

    async CreateService({ spec }, call) {
      demand(checkServiceSpec(spec));
      if (spec === null) throw rejection(invalid("invalid argument"));
      return CreateServiceResponse.create({ service: await create(spec, call) });
    },

    async UpdateService({ serviceId, serviceVersion, spec, rollback }, call) {
      demandGiven(serviceId, serviceVersion, spec);
      demand(checkServiceSpec(spec));
      if (spec === null || serviceVersion === null) throw rejection(invalid("invalid argument"));
      const before = serviceOf(serviceId);
      demand(checkServiceUpdate(before, spec));
      let after: Service;
      if (rollback === UpdateServiceRequest_Rollback.PREVIOUS) {
        const back = rolledBackService(before, env.clock.now());
        if (back.kind === "refused") throw rejection(back.refusal);
        after = back.service;
      } else {
        after = updatedService(before, spec, serviceVersion, env.clock.now());
      }
      // Of a rollback it is the spec before that will be, which others may have got in the way of meanwhile.
      checkSurroundings(after.spec ?? spec, serviceId, before.spec);
      await commit(env, call, replacement("service", atVersion("service", after, serviceVersion)));
      return UpdateServiceResponse.create({ service: stored(env, "service", after) });
    },

    async RemoveService({ serviceId }, call) {
      serviceOf(serviceId);
      await commit(env, call, removal("service", serviceId));
      return RemoveServiceResponse.create({});
    },

    ListServiceStatuses({ services }) {
      const statuses = services.map((serviceId) => {
        const service = store.get("service", serviceId);
        if (service === undefined) return ListServiceStatusesResponse_ServiceStatus.create({ serviceId });
        const counts = countTasks(service, store.tasksByService(serviceId), (id) => store.get("node", id));
        return ListServiceStatusesResponse_ServiceStatus.create({
          serviceId,
          desiredTasks: counts.desired,
          runningTasks: counts.running,
          completedTasks: counts.completed,
        });
      });
      return ListServiceStatusesResponse.create({ statuses });
    },
  };
}
