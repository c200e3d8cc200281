/** Makes tasks start and stop during faults: with each fault, one service replaces all of its tasks. */
import {
  ControlService,
  ListServicesRequest,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateServiceRequest,
} from "../../proto/gen/messages.ts";
import { ask } from "../fixtures/control-client.ts";
import type { Place } from "./place.ts";

/** The service whose tasks are replaced; other services' tasks must keep running undisturbed. */
export const churned = "db";
const callMsMax = 10_000;

/** Requests the replacement once through this manager; the outcome under a fault is left open. */
export async function churn(manager: Place): Promise<void> {
  const { ListServices, UpdateService } = ControlService.methods;
  try {
    const { services } = await ask(manager, ListServices, ListServicesRequest.create({}), callMsMax);
    const service = services.find(({ spec }) => spec?.annotations?.name === churned);
    if (service === undefined || service.spec === null) return;
    const task = TaskSpec.patch(service.spec.task ?? TaskSpec.create({}), {
      forceUpdate: (service.spec.task?.forceUpdate ?? 0) + 1,
    });
    // All at once: the next fault must not start while this update is in progress.
    const spec = ServiceSpec.patch(service.spec, { task, update: UpdateConfig.create({ parallelism: 0 }) });
    const request = { serviceId: service.id, serviceVersion: service.meta?.version ?? null, spec };
    await ask(manager, UpdateService, UpdateServiceRequest.create(request), callMsMax);
  } catch {
    // Rejected or unanswered: this fault has no churn.
  }
}
