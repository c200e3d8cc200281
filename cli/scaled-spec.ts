/** A service's spec with another number of replicas, for `service scale`. */
import { ReplicatedJob, ReplicatedService, ServiceSpec } from "../proto/gen/messages.ts";
import { UsageError, UserError } from "../lib/user-error.ts";
import { anyNumber, parseCount } from "./values.ts";

export function scaledTo(spec: ServiceSpec, count: number): ServiceSpec {
  if (spec.replicated !== null) {
    return ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: count }) });
  }
  if (spec.replicatedJob === null) throw new UserError("scale can only be used with replicated or replicated-job mode");
  return ServiceSpec.patch(spec, {
    replicatedJob: ReplicatedJob.patch(spec.replicatedJob, { totalCompletions: count }),
  });
}

/** `web=5` */
export function parseScale(operand: string): { readonly name: string; readonly count: number } {
  const at = operand.lastIndexOf("=");
  if (at < 1) throw new UsageError(`invalid scale specifier "${operand}": expected SERVICE=REPLICAS`);
  const [name, count] = [operand.slice(0, at), operand.slice(at + 1)];
  if (!/^-?\d+$/.test(count))
    throw new UsageError(`invalid replicas value "${count}" in "${operand}": expected a whole number`);
  return { name, count: parseCount(count, "replicas", anyNumber) };
}
