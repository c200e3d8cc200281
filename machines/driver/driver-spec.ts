/** The payloads by which a task asks for a driver plugin. */
import { DriverSpec, type ExecSpec, type TaskSpec } from "../../proto/gen/messages.ts";

/** Last part of the payload's type URL. */
export const driverSpecType = "muster.v1.DriverSpec";

export function isDriverSpec(typeUrl: string): boolean {
  return typeUrl === driverSpecType || typeUrl.endsWith(`/${driverSpecType}`);
}

/** Of processes that are run by the driver `exec`: the short form of its configuration, which `execAsDriver` writes out. */
export const execSpecType = "muster.v1.ExecSpec";

export function isExecSpec(typeUrl: string): boolean {
  return typeUrl === execSpecType || typeUrl.endsWith(`/${execSpecType}`);
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

/** For a text that is what it is: in a driver's configuration `${` and `%{` begin an expression. */
export function literally(text: string): string {
  return text.replaceAll(/[$%](?=\{)/g, (sign) => sign + sign);
}

/** The same for an entry of the environment, in which `${` alone begins something. */
export function literalEntry(entry: string): string {
  return entry.replaceAll("${", () => "$${");
}

/** What the driver `exec` is asked for. */
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
