/** Writes of UpdateService: the new spec, the previous one, and the versions that distinguish their tasks. */
import {
  JobStatus,
  Service,
  type Rollout,
  ServiceSpec,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Version,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { isSteering } from "./jobs/labels.ts";
import { refuse, type Refusal } from "../refusal.ts";
import { isSameMessage } from "../same-message.ts";
import { isJob } from "./service-mode.ts";

type ServiceUpdate =
  | { readonly kind: "service"; readonly service: Service }
  | { readonly kind: "refused"; readonly refusal: Refusal };

/** A new service as CreateService stores it. */
export function newService(id: string, spec: ServiceSpec, nowMs: number): Service {
  return Service.create({
    id,
    spec,
    specVersion: Version.create({}),
    ...(isJob(spec)
      ? { jobStatus: JobStatus.create({ jobIteration: Version.create({}), lastExecution: timestampOf(nowMs) }) }
      : {}),
  });
}

/** The next iteration: any update restarts a job's work, except one that only changes job labels. */
function nextJobStatus(service: Service, nowMs: number): JobStatus | null {
  if (!isJob(service.spec)) return service.jobStatus;
  return JobStatus.create({
    jobIteration: Version.create({ index: (service.jobStatus?.jobIteration?.index ?? 0) + 1 }),
    lastExecution: timestampOf(nowMs),
  });
}

/** During an unfinished update: a change such as scaling must not make the unfinished spec the previous (good) one. */
function keepsUnfinished(
  { previousSpec, spec, updateStatus }: Service,
  next: ServiceSpec,
  record: Rollout | null,
): boolean {
  // The update of this spec had completed before that rollout started.
  if (record?.late === true) return false;
  const state = updateStatus?.state;
  const isUnfinished = state === UpdateStatus_UpdateState.UPDATING || state === UpdateStatus_UpdateState.PAUSED;
  return (
    isUnfinished &&
    previousSpec !== null &&
    isSameMessage(spec?.task ?? null, next.task) &&
    isSameMessage(spec?.endpoint ?? null, next.endpoint)
  );
}

/** The rollback target after the service gets the spec `next`. */
function previousOf(stored: Service, next: ServiceSpec, record: Rollout | null): Partial<Service> {
  const { previousSpec, spec, specVersion } = stored;
  if (isSameMessage(spec, next)) return {};
  if (!keepsUnfinished(stored, next, record)) return { previousSpec: spec, previousSpecVersion: specVersion };
  const isScaled = !isSameMessage(spec?.replicated ?? null, next.replicated);
  if (previousSpec === null || !isScaled || previousSpec.replicated === null || next.replicated === null) return {};
  return { previousSpec: ServiceSpec.patch(previousSpec, { replicated: next.replicated }) };
}

/**
 * `version`: the version that the caller read, which becomes the spec's version. Unlike in SwarmKit, an update that changes
 * nothing, or no tasks while another update is unfinished, keeps the previous spec: a rollback restores the last different
 * spec, with the replicas requested since. `record`: the record of the rollout that the service's UpdateStatus is about.
 */
export function updatedService(
  stored: Service,
  spec: ServiceSpec,
  version: Version,
  nowMs: number,
  record: Rollout | null = null,
): Service {
  const previous = previousOf(stored, spec, record);
  // Pausing a job or changing its schedule does not change its work: its tasks and completed work stay.
  if (isJob(stored.spec) && isSteering(stored.spec, spec)) return Service.patch(stored, { spec });
  return Service.patch(stored, {
    spec,
    specVersion: version,
    ...previous,
    updateStatus: null,
    jobStatus: nextJobStatus(stored, nowMs),
  });
}

/** Swaps the spec with the previous one, so a second rollback restores the current one. */
export function rolledBackService(stored: Service, nowMs: number): ServiceUpdate {
  if (stored.previousSpec === null) {
    return {
      kind: "refused",
      refusal: refuse("failed-precondition", `service ${stored.id} does not have a previous spec`),
    };
  }
  const service = Service.patch(stored, {
    spec: stored.previousSpec,
    specVersion: stored.previousSpecVersion,
    previousSpec: stored.spec,
    previousSpecVersion: stored.specVersion,
    updateStatus: UpdateStatus.create({
      state: UpdateStatus_UpdateState.ROLLBACK_STARTED,
      message: "manually requested rollback",
      startedAt: timestampOf(nowMs),
    }),
    jobStatus: nextJobStatus(stored, nowMs),
  });
  return { kind: "service", service };
}
