/** Flags of an agent's task drivers. */
import { resolve } from "node:path";
import { UsageError } from "../../lib/user-error.ts";
import { driverName, taskUsers, type DriverChoice, type PlainValue } from "../../processes/drivers.ts";
import { driverConfigFrom } from "../driver-config.ts";

export const driverFlags = {
  "plugin-dir": {
    type: "string",
    multiple: true,
    value: "DIR",
    help: "Directory whose executables are run as task-driver plugins (default: plugins/ under the data dir)",
  },
  driver: {
    type: "string",
    multiple: true,
    value: "NAME=PATH",
    help: "Task-driver plugin and its executable; exec=none turns off the built-in exec driver",
  },
  "driver-config": {
    type: "string",
    multiple: true,
    value: "NAME=JSON|NAME=@FILE",
    help: "Configuration of a task-driver plugin; NAME is the name given with --driver, or the plugin's file name",
  },
  "task-user": {
    type: "string",
    value: "USER",
    help: "User for process tasks that do not name one, if the agent runs as root (default nobody)",
  },
  "allow-root": {
    type: "boolean",
    help: "Allow process tasks to run as root. Everyone who may create a service then has root on this node",
  },
} as const;

/** Throws UsageError or UserError. */
export async function driverChoice(values: {
  readonly "plugin-dir"?: readonly string[] | undefined;
  readonly driver?: readonly string[] | undefined;
  readonly "driver-config"?: readonly string[] | undefined;
  readonly "task-user"?: string | undefined;
  readonly "allow-root"?: boolean | undefined;
}): Promise<DriverChoice> {
  const named = new Map<string, string | null>();
  for (const text of values.driver ?? []) {
    const [name, path] = pairOf(text, "--driver", "NAME=PATH");
    if (named.has(name)) throw new UsageError(`--driver sets "${name}" more than once`);
    named.set(name, path === "none" ? null : resolve(path));
  }
  const configs = new Map<string, { readonly [key: string]: PlainValue } | null>();
  for (const text of values["driver-config"] ?? []) {
    const [name, config] = pairOf(text, "--driver-config", "NAME=JSON or NAME=@FILE");
    if (configs.has(name)) throw new UsageError(`--driver-config sets "${name}" more than once`);
    configs.set(name, await driverConfigFrom(config, `--driver-config ${name}`));
  }
  return {
    directories: (values["plugin-dir"] ?? []).map((path) => resolve(path)),
    named,
    configs,
    users: taskUsers(values),
  };
}

function pairOf(text: string, flag: string, usage: string): readonly [string, string] {
  const at = text.indexOf("=");
  const [name, value] = [text.slice(0, Math.max(0, at)), text.slice(at + 1)];
  if (!driverName.test(name) || value === "")
    throw new UsageError(`invalid argument "${text}" for "${flag}" flag: expected ${usage}`);
  return [name, value];
}
