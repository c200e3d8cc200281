/** The health check of a task that is not a container: read from its spec, and described for people. */
import { decodedOrNull } from "../../proto/codec.ts";
import { ExecSpec, type HealthCheck, type TaskSpec } from "../../proto/gen/messages.ts";
import { driverRuntimeOf } from "./spec.ts";
import { durationMs } from "../../proto/time.ts";

/** Docker's defaults, which also apply to containers (moby, daemon/health.go). Times in milliseconds. */
const healthDefaults = {
  intervalMs: 30_000,
  timeoutMs: 30_000,
  retries: 3,
  startPeriodMs: 0,
  startIntervalMs: 5_000,
} as const;

/** In milliseconds; each above 0, except the start period. */
export interface HealthTimes {
  readonly intervalMs: number;
  readonly timeoutMs: number;
  /** Failures in a row that make the task unhealthy. */
  readonly retries: number;
  readonly startPeriodMs: number;
  readonly startIntervalMs: number;
}

/** Null for a task without one, and for a container, whose engine checks it. */
export function healthOf(task: TaskSpec | null): HealthCheck | null {
  const driver = driverRuntimeOf(task);
  if (driver !== null) return driver.spec.health;
  const payload = task?.generic?.kind === "exec" ? task.generic.payload : null;
  return payload === null ? null : (decodedOrNull(ExecSpec, payload.value)?.health ?? null);
}

/** As in Docker, 0 means the default. */
export function healthTimes(check: HealthCheck): HealthTimes {
  return {
    intervalMs: durationMs(check.interval, 0) || healthDefaults.intervalMs,
    timeoutMs: durationMs(check.timeout, 0) || healthDefaults.timeoutMs,
    retries: check.retries || healthDefaults.retries,
    startPeriodMs: durationMs(check.startPeriod, healthDefaults.startPeriodMs),
    startIntervalMs: durationMs(check.startInterval, 0) || healthDefaults.startIntervalMs,
  };
}

/** Such as `GET :8080/ready`. */
export function healthWords({ command, http, tcp }: HealthCheck): string {
  if (http !== null) {
    const port = `:${http.port}`;
    return `GET ${http.host.endsWith(port) ? http.host : `${http.host}${port}`}${http.path || "/"}`;
  }
  if (tcp !== null) return `a connection to port ${tcp.port}`;
  // The form in which clients send a shell command line.
  const [shell, option, line] = command;
  return shell === "/bin/sh" && option === "-c" && line !== undefined ? line : command.join(" ");
}

/** How many characters of a check's output are kept: it becomes part of the task's status. */
const saidHead = 100;
const saidTail = 200;

/** In one line, without its middle if it is long: answers begin with the problem, commands end with it. */
export function healthSaid(output: string): string {
  const line = output.replaceAll(/[\s\p{Cc}]+/gu, " ").trim();
  return line.length <= saidHead + saidTail ? line : `${line.slice(0, saidHead)} … ${line.slice(-saidTail)}`;
}
