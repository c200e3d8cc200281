/** The payloads with which a task selects a driver plugin. */
import { DriverSpec, type ExecSpec, type TaskSpec } from "../../proto/gen/messages.ts";

/** Last part of the payload's type URL. */
export const driverSpecType = "muster.v1.DriverSpec";

export function isDriverSpec(typeUrl: string): boolean {
  return typeUrl === driverSpecType || typeUrl.endsWith(`/${driverSpecType}`);
}

/** Processes of the `exec` driver: a short form of its configuration, which `execAsDriver` expands. */
export const execSpecType = "muster.v1.ExecSpec";

export function isExecSpec(typeUrl: string): boolean {
  return typeUrl === execSpecType || typeUrl.endsWith(`/${execSpecType}`);
}

interface DriverRuntime {
  /** The driver's name. */
  readonly kind: string;
  readonly spec: DriverSpec;
}

/** Null for other tasks, and for a payload that cannot be decoded. */
export function driverRuntimeOf(task: TaskSpec | null): DriverRuntime | null {
  const generic = task?.generic ?? null;
  if (generic?.payload == null || !isDriverSpec(generic.payload.type_url)) return null;
  try {
    return { kind: generic.kind, spec: DriverSpec.decode(generic.payload.value) };
  } catch {
    return null;
  }
}

/** Escapes text in a driver's configuration, where `${` and `%{` begin an expression. */
export function literally(text: string): string {
  return text.replaceAll(/[$%](?=\{)/g, (sign) => sign + sign);
}

/** The same for an environment entry, where only `${` begins an expression. */
export function literalEntry(entry: string): string {
  return entry.replaceAll("${", () => "$${");
}

/** The equivalent request to the `exec` driver. */
export function execAsDriver({ args, command, dir, env, ...common }: ExecSpec): DriverSpec {
  const config = {
    command: literally(command),
    ...(args.length === 0 ? {} : { args: args.map(literally) }),
    ...(dir === "" ? {} : { work_dir: literally(dir) }),
  };
  const { configs, dns, health, mounts, secrets, stopGracePeriod, stopSignal, user } = common;
  return DriverSpec.create({
    config: JSON.stringify(config),
    env: env.map(literalEntry),
    user,
    stopSignal,
    stopGracePeriod,
    secrets,
    configs,
    health,
    mounts,
    dns,
  });
}
