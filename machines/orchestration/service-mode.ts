/** How a service runs its tasks. */
import type { ServiceSpec } from "../../proto/gen/messages.ts";

export type ServiceMode = "replicated" | "global" | "replicated-job" | "global-job";

export function modeOf(spec: ServiceSpec | null): ServiceMode | null {
  if (spec === null) return null;
  if (spec.replicated !== null) return "replicated";
  if (spec.global !== null) return "global";
  if (spec.replicatedJob !== null) return "replicated-job";
  return spec.globalJob !== null ? "global-job" : null;
}

export function isJob(spec: ServiceSpec | null): boolean {
  const mode = modeOf(spec);
  return mode === "replicated-job" || mode === "global-job";
}
