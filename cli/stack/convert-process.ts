/**
 * Services of plain processes, an extension of the Compose Specification: with `x-muster: {driver: exec}`, nodes run the
 * service's `command` directly, like `muster service create --driver exec`.
 */
import { ExecSpec, HealthCheck, type TaskSpec } from "../../proto/gen/messages.ts";
import { healthHttp, healthTcp, shellCheck } from "../service/health.ts";
import { execTask } from "../service/settings.ts";
import { dns } from "./convert-container.ts";
import { filesOf, type Surroundings } from "./convert-files.ts";
import type { View } from "./view.ts";

const extension = "x-muster";
const ownKeys = new Set(["driver", "health_http", "health_tcp", "max_concurrent"]);

/** Keys supported without a container. */
const known = new Set([
  "command",
  "configs",
  "depends_on",
  "deploy",
  "dns",
  "dns_opt",
  "dns_search",
  "environment",
  "healthcheck",
  "logging",
  "networks",
  "ports",
  "profiles",
  "restart",
  "scale",
  "secrets",
  "stop_grace_period",
  "stop_signal",
  "user",
  "working_dir",
]);

/** Whether the service runs plain processes. Throws UserError for unknown keys of `x-muster`. */
export function isProcess(service: View): boolean {
  const own = service.child(extension);
  for (const key of own.keys) {
    if (!ownKeys.has(key)) throw own.mistake(key, `is unknown: x-muster supports ${[...ownKeys].join(", ")}`);
  }
  const driver = own.text("driver") || "container";
  if (driver !== "exec" && driver !== "container")
    throw own.mistake("driver", `must be container or exec, not '${driver}'`);
  return driver === "exec";
}

/** The kind of check is the Compose file's command or `x-muster`'s; its timing is always the Compose file's. */
function healthcheck(service: View): HealthCheck | null {
  const own = service.child(extension);
  const [http, tcp] = [own.text("health_http"), own.text("health_tcp")];
  const health = service.child("healthcheck");
  const test = health.texts("test");
  const [kind = "", ...words] = test;
  const isDisabled = health.boolean("disable") === true;
  if (isDisabled && test.length > 0) throw health.mistake("disable", "cannot be combined with 'test'");
  const checks = [test.length > 0 || isDisabled, http !== "", tcp !== ""].filter(Boolean).length;
  if (checks > 1) throw own.mistake("", "sets more than one health check: set only one");
  if (isDisabled || kind === "NONE") return null;
  if (checks === 0) {
    if (service.has("healthcheck")) throw health.mistake("", "does not set a test");
    return null;
  }
  if (test.length > 0 && kind !== "CMD" && kind !== "CMD-SHELL")
    throw health.mistake("test", `must be a string, or a list that begins with NONE, CMD or CMD-SHELL, not '${kind}'`);
  return HealthCheck.create({
    command: kind === "CMD-SHELL" ? shellCheck(words.join(" ")) : words,
    http:
      http === "" ? null : own.read("health_http", () => healthHttp(http, "it"), ":PORT/PATH or http://HOST:PORT/PATH"),
    tcp: tcp === "" ? null : own.read("health_tcp", () => healthTcp(tcp, "it"), ":PORT"),
    interval: health.duration("interval"),
    timeout: health.duration("timeout"),
    startPeriod: health.duration("start_period"),
    startInterval: health.duration("start_interval"),
    retries: health.whole("retries") ?? 0,
  });
}

export function processOf(service: View, around: Surroundings): Partial<TaskSpec> {
  const other = service.keys.find((key) => !known.has(key));
  if (other !== undefined)
    throw service.mistake(other, "is supported for containers only, but this service runs processes");
  const [program, ...args] = service.texts("command");
  if (program === undefined) throw service.mistake("", "requires 'command': the program to run");
  // A name without a value sets nothing.
  const env = [...service.variables("environment")].flatMap(([name, value]) =>
    value === null ? [] : `${name}=${value}`,
  );
  return execTask(
    ExecSpec.create({
      command: program,
      args,
      env: env.toSorted(),
      dir: service.text("working_dir"),
      user: service.text("user"),
      stopSignal: service.text("stop_signal"),
      stopGracePeriod: service.duration("stop_grace_period"),
      health: healthcheck(service),
      dns: dns(service),
      ...filesOf(service, around),
    }),
  );
}
