/** What makes tasks start and stop while faults are there: one service is told to replace all of its tasks with each fault. */
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

/** The service whose tasks are replaced; those of others must go on as they are. */
export const churned = "db";
const callMsMax = 10_000;

/** Asks this manager for it, once: what becomes of that under a fault is left open. */
export async function churn(manager: Place): Promise<void> {
  const { ListServices, UpdateService } = ControlService.methods;
  try {
    const { services } = await ask(manager, ListServices, ListServicesRequest.create({}), callMsMax);
    const service = services.find(({ spec }) => spec?.annotations?.name === churned);
    if (service === undefined || service.spec === null) return;
    const task = TaskSpec.patch(service.spec.task ?? TaskSpec.create({}), {
      forceUpdate: (service.spec.task?.forceUpdate ?? 0) + 1,
    });
    // All at once: the next fault must not find the last one's update under way.
    const spec = ServiceSpec.patch(service.spec, { task, update: UpdateConfig.create({ parallelism: 0 }) });
    const request = { serviceId: service.id, serviceVersion: service.meta?.version ?? null, spec };
    await ask(manager, UpdateService, UpdateServiceRequest.create(request), callMsMax);
  } catch {
    // Refused, or nobody answers: this fault has no churn.
  }
}
