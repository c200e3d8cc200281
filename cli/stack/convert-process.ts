/**
 * A service of plain processes, which the Compose Specification does not know: `x-muster: {driver: exec}` in a service makes
 * its `command` the program that nodes run themselves, as `muster service create --driver exec` does.
 */
import { ExecSpec, HealthCheck, type TaskSpec } from "../../proto/gen/messages.ts";
import { healthHttp, healthTcp, shellCheck } from "../service/service-health.ts";
import { execTask } from "../service/service-settings.ts";
import { dns } from "./convert-container.ts";
import { filesOf, type Surroundings } from "./convert-files.ts";
import type { View } from "./view.ts";

const extension = "x-muster";
const ownKeys = new Set(["driver", "health_http", "health_tcp"]);

/** What means something without a container. */
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

/** Whether the service is one of processes. Throws UserError for what `x-muster` does not know. */
export function isProcess(service: View): boolean {
  const own = service.child(extension);
  for (const key of own.keys) {
    if (!ownKeys.has(key)) throw own.mistake(key, `is not a key of x-muster, which knows ${[...ownKeys].join(", ")}`);
  }
  const driver = own.text("driver") || "container";
  if (driver !== "exec" && driver !== "container")
    throw own.mistake("driver", `must be container or exec, not '${driver}'`);
  return driver === "exec";
}

/** By the Compose file's command, or by what `x-muster` says instead; when, the Compose file says for each. */
function healthcheck(service: View): HealthCheck | null {
  const own = service.child(extension);
  const [http, tcp] = [own.text("health_http"), own.text("health_tcp")];
  const health = service.child("healthcheck");
  const test = health.texts("test");
  const [kind = "", ...words] = test;
  const isDisabled = health.truth("disable") === true;
  if (isDisabled && test.length > 0) throw health.mistake("disable", "does not fit beside 'test'");
  const said = [test.length > 0 || isDisabled, http !== "", tcp !== ""].filter(Boolean).length;
  if (said > 1) throw own.mistake("", "says what is checked, and so does another key: one of them can");
  if (isDisabled || kind === "NONE") return null;
  if (said === 0) {
    if (service.has("healthcheck")) throw health.mistake("", "does not say what is checked");
    return null;
  }
  if (test.length > 0 && kind !== "CMD" && kind !== "CMD-SHELL")
    throw health.mistake("test", `must be a text, or a list that begins with NONE, CMD or CMD-SHELL, not '${kind}'`);
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
  if (other !== undefined) throw service.mistake(other, "fits containers only, and this is a service of processes");
  const [program, ...args] = service.texts("command");
  if (program === undefined) throw service.mistake("", "needs 'command': the program to run");
  // A process has the variables that are set; a name alone sets nothing.
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
