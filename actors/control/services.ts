/**
 * Control's service methods.
 *
 * C1: of two services that want the same port, one is refused. Checked here, where the error names the other service, and again
 *     by the ledger (machines/orchestration/service-conflicts.ts), so that it also holds across managers.
 */
import { matchesService } from "../../machines/list-filters.ts";
import { invalid } from "../../machines/refusal.ts";
import { withDefaults } from "../../machines/orchestration/service-defaults.ts";
import { countTasks } from "../../machines/orchestration/service-status.ts";
import { checkServiceUpdate } from "../../machines/validation/service.ts";
import {
  CreateServiceResponse,
  GetServiceResponse,
  ListServiceStatusesResponse,
  ListServiceStatusesResponse_ServiceStatus,
  ListServicesResponse,
  RemoveServiceResponse,
  UpdateServiceRequest_Rollback,
  UpdateServiceResponse,
  type Service,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Environment } from "../environment.ts";
import { demand, demandGiven, notFound, rejection } from "./answer.ts";
import { candidates } from "./candidates.ts";
import type { ControlHandlers } from "./handlers.ts";
import { changedService, checkedSpec, createdService, nameConflict, restoredService } from "./service-request.ts";
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

  async function create(spec: ServiceSpec, call: Parameters<ServiceMethods["CreateService"]>[1]): Promise<Service> {
    const service = createdService(env, spec, () => newId(random));
    try {
      await commit(env, call, creation("service", service));
    } catch (error) {
      if (error instanceof RpcError && error.code === Status.ALREADY_EXISTS) {
        throw nameConflict(spec.annotations?.name ?? "");
      }
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
      for (const service of candidates(store, "service", filters)) {
        if (filters === null || matchesService(filters, service)) services.push(service);
      }
      return ListServicesResponse.create({ services });
    },

    async CreateService({ spec }, call) {
      return CreateServiceResponse.create({ service: await create(checkedSpec(spec), call) });
    },

    async UpdateService({ serviceId, serviceVersion, spec, rollback }, call) {
      demandGiven(serviceId, serviceVersion, spec);
      const wanted = checkedSpec(spec);
      const before = serviceOf(serviceId);
      if (serviceVersion === null) throw rejection(invalid("invalid argument"));
      let after: Service;
      if (rollback === UpdateServiceRequest_Rollback.PREVIOUS) {
        // The spec in the request is not used, but checked, as in SwarmKit.
        demand(checkServiceUpdate(before, wanted));
        after = restoredService(env, before);
      } else {
        after = changedService(env, before, wanted, serviceVersion);
      }
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
