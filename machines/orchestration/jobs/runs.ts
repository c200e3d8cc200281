/**
 * The runs of a scheduled job: separate services, created from the scheduled one, with ids derived from the schedule and the
 * due time. The outcome of each due time is in the schedule's record, a Resource with the service's id.
 */
import { decodedOrNull } from "../../../proto/codec.ts";
import {
  Annotations,
  Any,
  Resource,
  ScheduledRun_Outcome,
  ScheduleStatus,
  ServiceSpec,
  type ScheduledRun,
  type Service,
} from "../../../proto/gen/messages.ts";
import { jobLabel, jobSettings, otherLabels } from "./labels.ts";

/** Kind of the Resource that holds a ScheduleStatus. */
export const scheduleKind = "muster.schedule";
const payloadType = "type.googleapis.com/muster.v1.ScheduleStatus";

/** As long as other ids: 14 characters of the scheduled service's id (72 random bits), and the due time in base 36. */
const runPrefixLength = 14;
const runTimeLength = 11;
/** Maximum length of a service name, minus the suffix of a run: `-20261231-235959`. */
const nameLengthMax = 63 - 16;

function prefixOf(serviceId: string): string {
  return serviceId.slice(0, runPrefixLength).padEnd(runPrefixLength, "0");
}

/** Each due time has one id, so creating a run twice is detected. `dueMs`: milliseconds since the epoch, in whole seconds. */
export function runId(serviceId: string, dueMs: number): string {
  return (
    prefixOf(serviceId) +
    Math.floor(dueMs / 1_000)
      .toString(36)
      .padStart(runTimeLength, "0")
  );
}

/** True for the id of a run of the scheduled service, also when neither is stored any more. */
export function isRunOf(id: string, serviceId: string): boolean {
  return id !== serviceId && id.startsWith(prefixOf(serviceId));
}

/** Id of the scheduled service that the service is a run of; null if it is not a run. */
export function scheduleOf({ id, spec }: Service): string | null {
  const serviceId = spec?.annotations?.labels[jobLabel.schedule] ?? "";
  return serviceId !== "" && isRunOf(id, serviceId) ? serviceId : null;
}

/** `2026-03-29T01:30:00Z` without its punctuation: `20260329-013000`. */
function digitsOf(dueIso: string): string {
  return dueIso.slice(0, 19).replaceAll(/[-:]/g, "").replace("T", "-");
}

export function runName(service: Service, dueMs: number): string {
  const name = service.spec?.annotations?.name ?? "";
  return `${name.slice(0, nameLengthMax)}-${digitsOf(isoOf(dueMs))}`;
}

/** Whether a run of the scheduled service of this name may be called so. */
export function isRunName(name: string, scheduled: string): boolean {
  return /^-\d{8}-\d{6}$/.test(name.slice(-16)) && name.slice(0, -16) === scheduled.slice(0, nameLengthMax);
}

/** The run's spec: the scheduled service's current spec without its schedule. */
export function runSpec(service: Service, dueMs: number, name: string): ServiceSpec {
  const spec = service.spec ?? ServiceSpec.create();
  const { labels } = spec.annotations ?? Annotations.create();
  const { ttlMs } = jobSettings(spec);
  return ServiceSpec.patch(spec, {
    annotations: Annotations.patch(spec.annotations ?? Annotations.create(), {
      name,
      labels: {
        ...otherLabels(labels),
        ...(ttlMs === null ? {} : { [jobLabel.ttl]: labels[jobLabel.ttl] as string }),
        [jobLabel.schedule]: service.id,
        [jobLabel.due]: isoOf(dueMs),
      },
    }),
  });
}

/** The run with the label that stops it. */
export function stoppedSpec(run: Service): ServiceSpec {
  const spec = run.spec ?? ServiceSpec.create();
  const annotations = spec.annotations ?? Annotations.create();
  return ServiceSpec.patch(spec, {
    annotations: Annotations.patch(annotations, { labels: { ...annotations.labels, [jobLabel.state]: "stopped" } }),
  });
}

/** In UTC, to the second: `2026-03-29T01:30:00Z`. */
export function isoOf(ms: number): string {
  let days = Math.floor(ms / 86_400_000);
  const seconds = Math.floor((ms - days * 86_400_000) / 1_000);
  // Days to civil dates, with years that begin in March so that the leap day is their last (Hinnant's algorithm).
  days += 719_468;
  const era = Math.floor(days / 146_097);
  const dayOfEra = days - era * 146_097;
  const yearOfEra = Math.floor(
    (dayOfEra - Math.floor(dayOfEra / 1_460) + Math.floor(dayOfEra / 36_524) - Math.floor(dayOfEra / 146_096)) / 365,
  );
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const fifth = Math.floor((5 * dayOfYear + 2) / 153);
  const day = dayOfYear - Math.floor((153 * fifth + 2) / 5) + 1;
  const month = fifth < 10 ? fifth + 3 : fifth - 9;
  const year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0);
  const two = (value: number): string => String(value).padStart(2, "0");
  const time = `${two(Math.floor(seconds / 3_600))}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return `${String(year).padStart(4, "0")}-${two(month)}-${two(day)}T${time}Z`;
}

/** The decoded record; null if there is none yet, or it is not a schedule's. */
export function readScheduleStatus(resource: Resource | undefined): ScheduleStatus | null {
  if (resource === undefined || resource.kind !== scheduleKind || resource.payload === null) return null;
  return decodedOrNull(ScheduleStatus, resource.payload.value);
}

/** The record with its new content. Its name is never looked up, but resources require a unique name. */
export function scheduleResource(before: Resource | undefined, status: ScheduleStatus): Resource {
  const payload = Any.create({ type_url: payloadType, value: ScheduleStatus.encode(status) });
  if (before !== undefined) return Resource.patch(before, { kind: scheduleKind, payload });
  return Resource.create({
    id: status.serviceId,
    annotations: Annotations.create({ name: `${scheduleKind}.${status.serviceId}` }),
    kind: scheduleKind,
    payload,
  });
}

export function isActive(run: ScheduledRun): boolean {
  return run.outcome === ScheduledRun_Outcome.OUTCOME_ACTIVE;
}
