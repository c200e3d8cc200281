/** From a task to what can be started: everything about it that can be wrong is found here, before anything starts. */
import { accessSync, constants, readFileSync, statSync } from "node:fs";
import { constants as osConstants } from "node:os";
import { isAbsolute, join } from "node:path";
import type { DriverTask } from "../../actors/agent/agent-ports.ts";
import { ExecSpec } from "../../proto/gen/messages.ts";
import { taskContext } from "./template-context.ts";
import { expand } from "./template.ts";

/** SwarmKit's default (worker protocol §5.6). */
const stopGraceMsDefault = 10_000;
const stopSignalDefault = "SIGTERM";

/** Last part of the payload's type URL. */
const specType = "muster.v1.ExecSpec";

export interface Command {
  /** Absolute path. */
  readonly path: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Absolute path; empty: the task's own directory. */
  readonly directory: string;
  /** Null: as the agent. */
  readonly user: { readonly uid: number; readonly gid: number } | null;
  readonly stopSignal: NodeJS.Signals;
  readonly stopGraceMs: number;
}

export type CommandOutcome =
  | { readonly kind: "command"; readonly command: Command; readonly spec: ExecSpec }
  | { readonly kind: "refused"; readonly reason: string };

/** The agent's own environment, of which tasks get only PATH, HOME and LANG. */
export type AgentEnvironment = Readonly<Record<string, string | undefined>>;

const refused = (reason: string): CommandOutcome => ({ kind: "refused", reason });

export function commandOf(task: DriverTask, agent: AgentEnvironment): CommandOutcome {
  const { payload } = task;
  if (payload === null || !(payload.type_url === specType || payload.type_url.endsWith(`/${specType}`))) {
    return refused(`exec: the task's payload is not a ${specType} but '${payload?.type_url ?? ""}'`);
  }
  let spec: ExecSpec;
  try {
    spec = ExecSpec.decode(payload.value);
  } catch {
    return refused(`exec: the task's payload is not a well-formed ${specType}`);
  }
  const { command, dir, stopGracePeriod } = spec;
  if (command === "") return refused("exec: the task names no command");
  const stopSignal = stopSignalOf(spec.stopSignal);
  if (stopSignal === null) return refused(`exec: '${spec.stopSignal}' is not a signal of this node`);
  if (dir !== "" && !isAbsolute(dir)) return refused(`exec: the directory '${dir}' is not an absolute path`);
  if (dir !== "" && !isDirectory(dir)) return refused(`exec: there is no directory ${dir} on this node`);
  const user = userOf(spec.user);
  if (user.kind === "refused") return user;
  const path = find(command, agent["PATH"] ?? "", dir);
  if (path === null) {
    return refused(
      command.includes("/")
        ? `exec: ${command} is not an executable file on this node`
        : `exec: ${command} is not found in the node's PATH`,
    );
  }
  const environment = environmentOf(spec.env, task, agent, user.home);
  if (environment.kind === "refused") return environment;
  const stopGraceMs =
    stopGracePeriod === null
      ? stopGraceMsDefault
      : Math.max(0, stopGracePeriod.seconds * 1_000 + stopGracePeriod.nanos / 1e6);
  return {
    kind: "command",
    spec,
    command: { path, args: spec.args, env: environment.env, directory: dir, user: user.user, stopSignal, stopGraceMs },
  };
}

/** Accepts `SIGTERM`, `TERM` and `15`, as Docker does. */
function stopSignalOf(text: string): NodeJS.Signals | null {
  const wanted = text === "" ? stopSignalDefault : text.toUpperCase();
  for (const [name, number] of Object.entries(osConstants.signals)) {
    if (name === wanted || name === `SIG${wanted}` || String(number) === wanted) return name as NodeJS.Signals;
  }
  return null;
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

function find(command: string, searchPath: string, directory: string): string | null {
  if (isAbsolute(command)) return isExecutable(command) ? command : null;
  if (command.includes("/"))
    return directory !== "" && isExecutable(join(directory, command)) ? join(directory, command) : null;
  for (const folder of searchPath.split(":")) {
    if (isAbsolute(folder) && isExecutable(join(folder, command))) return join(folder, command);
  }
  return null;
}

type Environment =
  | { readonly kind: "env"; readonly env: Record<string, string> }
  | { readonly kind: "refused"; readonly reason: string };

function environmentOf(
  entries: readonly string[],
  task: DriverTask,
  agent: AgentEnvironment,
  home: string | null,
): Environment {
  const env: Record<string, string> = {};
  for (const name of ["PATH", "HOME", "LANG"]) {
    const value = agent[name];
    if (value !== undefined) env[name] = value;
  }
  if (home !== null) env["HOME"] = home;
  if (task.traceparent !== "") env["TRACEPARENT"] = task.traceparent;
  const context = taskContext(task);
  for (const entry of entries) {
    const [, name, text] = /^([A-Za-z_][A-Za-z0-9_]*)=([^\0]*)$/s.exec(entry) ?? [];
    if (name === undefined || text === undefined)
      return { kind: "refused", reason: `exec: '${entry}' in the environment is not NAME=value` };
    const expansion = expand(text, context);
    if (expansion.kind === "failed")
      return { kind: "refused", reason: `exec: the template of ${name} cannot be expanded: ${expansion.reason}` };
    env[name] = expansion.text;
  }
  return { kind: "env", env };
}

type User =
  | {
      readonly kind: "user";
      readonly user: { readonly uid: number; readonly gid: number } | null;
      readonly home: string | null;
    }
  | { readonly kind: "refused"; readonly reason: string };

/** A name of /etc/passwd or a uid. */
function userOf(text: string): User {
  if (text === "") return { kind: "user", user: null, home: null };
  const entries = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .map((line) => line.split(":"));
  const entry = entries.find(([name]) => name === text) ?? entries.find(([, , uid]) => uid === text);
  const isNumber = /^[0-9]{1,9}$/.test(text);
  if (entry === undefined && !isNumber)
    return { kind: "refused", reason: `exec: there is no user ${text} on this node` };
  const uid = Number(entry?.[2] ?? text);
  if (process.getuid?.() === uid) return { kind: "user", user: null, home: null };
  if (process.getuid?.() !== 0)
    return { kind: "refused", reason: `exec: cannot run as user ${text}, because the agent does not run as root` };
  return { kind: "user", user: { uid, gid: Number(entry?.[3] ?? uid) }, home: entry?.[5] ?? "/" };
}
