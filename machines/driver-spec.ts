/** The payload by which a task asks for a driver plugin. */
import { DriverSpec, type TaskSpec } from "../proto/gen/messages.ts";

/** Last part of the payload's type URL. */
export const driverSpecType = "muster.v1.DriverSpec";

export function isDriverSpec(typeUrl: string): boolean {
  return typeUrl === driverSpecType || typeUrl.endsWith(`/${driverSpecType}`);
}

export interface DriverRuntime {
  /** Of the driver. */
  readonly kind: string;
  readonly spec: DriverSpec;
}

/** Null for any other task, and for a payload that cannot be read. */
export function driverRuntimeOf(task: TaskSpec | null): DriverRuntime | null {
  const generic = task?.generic ?? null;
  if (generic?.payload == null || !isDriverSpec(generic.payload.type_url)) return null;
  try {
    return { kind: generic.kind, spec: DriverSpec.decode(generic.payload.value) };
  } catch {
    return null;
  }
}
