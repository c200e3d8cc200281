/** What UpdateService writes: the new spec beside the one before it, and the versions by which tasks are told apart. */
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

export type ServiceUpdate =
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

/** The next iteration; a job's work is done again after any update but one that only steers it. */
function nextJobStatus(service: Service, nowMs: number): JobStatus | null {
  if (!isJob(service.spec)) return service.jobStatus;
  return JobStatus.create({
    jobIteration: Version.create({ index: (service.jobStatus?.jobIteration?.index ?? 0) + 1 }),
    lastExecution: timestampOf(nowMs),
  });
}

/** In the middle of an update that is not done: scaling, say, is no reason to take the unfinished spec for a good one. */
function keepsUnfinished(
  { previousSpec, spec, updateStatus }: Service,
  next: ServiceSpec,
  record: Rollout | null,
): boolean {
  // The spec was done before that one began.
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

/** What a rollback leads to once the service has the spec `next`. */
function previousOf(stored: Service, next: ServiceSpec, record: Rollout | null): Partial<Service> {
  const { previousSpec, spec, specVersion } = stored;
  if (isSameMessage(spec, next)) return {};
  if (!keepsUnfinished(stored, next, record)) return { previousSpec: spec, previousSpecVersion: specVersion };
  const isScaled = !isSameMessage(spec?.replicated ?? null, next.replicated);
  if (previousSpec === null || !isScaled || previousSpec.replicated === null || next.replicated === null) return {};
  return { previousSpec: ServiceSpec.patch(previousSpec, { replicated: next.replicated }) };
}

/**
 * `version` is what the caller read: it becomes the spec's version. Unlike in SwarmKit, an update that changes nothing, or
 * nothing of the tasks while an update of them is not done, keeps the previous spec: a rollback still leads to the last
 * spec that was different, with as many replicas as were asked for since. `record`: of the rollout that the service's UpdateStatus speaks of.
 */
export function updatedService(
  stored: Service,
  spec: ServiceSpec,
  version: Version,
  nowMs: number,
  record: Rollout | null = null,
): Service {
  const previous = previousOf(stored, spec, record);
  // Pausing a job, or changing its schedule, is no other work: its tasks stay what they are, and so does what is done.
  if (isJob(stored.spec) && isSteering(stored.spec, spec)) return Service.patch(stored, { spec });
  return Service.patch(stored, {
    spec,
    specVersion: version,
    ...previous,
    updateStatus: null,
    jobStatus: nextJobStatus(stored, nowMs),
  });
}

/** Swaps the spec with the one before it: a second rollback leads back. */
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
