/**
 * A service of plain processes, which the Compose Specification does not know: `x-muster: {driver: exec}` in a service makes
 * its `command` the program that nodes run themselves, as `muster service create --driver exec` does.
 */
import { ExecSpec, type TaskSpec } from "../../proto/gen/messages.ts";
import { execTask } from "../service/service-settings.ts";
import { filesOf, type Surroundings } from "./convert-files.ts";
import type { View } from "./view.ts";

const extension = "x-muster";

/** What means something without a container. */
const known = new Set([
  "command",
  "configs",
  "depends_on",
  "deploy",
  "environment",
  "logging",
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
    if (key !== "driver") throw own.mistake(key, "is not a key of x-muster, which knows driver");
  }
  const driver = own.text("driver") || "container";
  if (driver !== "exec" && driver !== "container")
    throw own.mistake("driver", `must be container or exec, not '${driver}'`);
  return driver === "exec";
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
      ...filesOf(service, around),
    }),
  );
}
