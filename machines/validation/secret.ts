/** Checks of secrets and configs before they are created, updated and removed. */
import {
  Annotations,
  type Config,
  type ConfigSpec,
  type Secret,
  type SecretSpec,
  type Service,
} from "../../proto/gen/messages.ts";
import { checkSecretName } from "../names.ts";
import { invalid, type Refusal } from "../refusal.ts";
import { useBy, type TasksOf } from "../orchestration/rollout/rollback-references.ts";
import { mentions } from "./reference.ts";
import { isSameBytes } from "../same-message.ts";

/** SwarmKit's limits in bytes, exclusive. */
const secretBytesLimit = 512_000;
const configBytesLimit = 1_024_000;

export function checkSecretSpec(spec: SecretSpec | null): Refusal | null {
  if (spec === null) return invalid("invalid argument");
  const name = checkSecretName(spec.annotations);
  if (name !== null) return name;
  if (spec.driver !== null) return spec.driver.name === "" ? invalid("secret driver must have a name") : null;
  if (spec.data.length === 0 || spec.data.length >= secretBytesLimit) {
    return invalid(`secret data must be larger than 0 and less than ${secretBytesLimit} bytes`);
  }
  return null;
}

export function checkConfigSpec(spec: ConfigSpec | null): Refusal | null {
  if (spec === null) return invalid("invalid argument");
  const name = checkSecretName(spec.annotations);
  if (name !== null) return name;
  if (spec.data.length === 0 || spec.data.length >= configBytesLimit) {
    return invalid(`config data must be larger than 0 and less than ${configBytesLimit} bytes`);
  }
  return null;
}

/** Only labels may change. The data may be omitted or repeated unchanged. */
export function checkLabelsOnly(stored: Secret | Config, spec: SecretSpec | ConfigSpec): Refusal | null {
  const before = stored.spec;
  const isDataKept = spec.data.length === 0 || isSameBytes(spec.data, before?.data ?? new Uint8Array());
  if ((before?.annotations?.name ?? "") !== (spec.annotations?.name ?? "") || !isDataKept) {
    return invalid("only updates to Labels are allowed");
  }
  return null;
}

/** The stored annotations with the requested labels: nothing else of a secret or config can change. */
export function relabelled(before: Annotations | null | undefined, spec: SecretSpec | ConfigSpec): Annotations {
  return Annotations.patch(before ?? Annotations.create({}), { labels: spec.annotations?.labels ?? {} });
}

/** The error names the services that use the object, sorted. A service whose update may roll back to it uses it, too. */
export function checkNotReferenced(
  noun: "secret" | "config",
  object: Secret | Config,
  services: Iterable<Service>,
  tasksOf: TasksOf,
): Refusal | null {
  const names: string[] = [];
  for (const service of services) {
    const use = useBy(service, tasksOf, ({ task }) => mentions(task, noun, object.id));
    const name = service.spec?.annotations?.name ?? "";
    if (use !== null) names.push(use === "now" ? name : `${name} (its update may be rolled back)`);
  }
  if (names.length === 0) return null;
  const plural = names.length > 1 ? "services" : "service";
  const name = object.spec?.annotations?.name ?? "";
  return invalid(`${noun} '${name}' is in use by the following ${plural}: ${names.toSorted().join(", ")}`);
}
