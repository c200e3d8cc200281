/**
 * Commands that differ from their task: with another user, directory, or variables of their own.
 *
 * CI1: the command stays in the task's namespaces, root, seccomp profile and Landlock ruleset.
 * CI2: another user than the task's has none of the capabilities that the task added for its own; root has the task's bounding set.
 * CI3: it changes to its directory as its own user, so it enters none that the user may not enter.
 */
import { userInfo } from "node:os";
import type { ExecIdentity } from "../../edges/plugin/server/index.ts";
import type { Tools } from "../../linux/system-tools.ts";
import { userNamed, type User } from "../../linux/user.ts";
import { sealedLater } from "./isolation.ts";
import { shell } from "./run-file.ts";
import {
  foreignNames,
  rootAndUser,
  type CommandFrame,
  type CommandSealing,
  type Surroundings,
} from "./surroundings.ts";

function isSame(one: User | null, other: User | null): boolean {
  return one?.uid === other?.uid && one?.gid === other?.gid;
}

/** Throws for an invalid variable. */
function environmentWith(before: Readonly<Record<string, string>>, entries: readonly string[]): Record<string, string> {
  const env = { ...before };
  for (const entry of entries) {
    const at = entry.indexOf("=");
    const name = at < 0 ? entry : entry.slice(0, at);
    if (name === "" || entry.includes("\0")) throw new Error(`invalid environment variable ${JSON.stringify(entry)}`);
    if (at < 0) delete env[name];
    else env[name] = entry.slice(at + 1);
  }
  return env;
}

/** CI2 */
function sealingFor(sealing: CommandSealing, user: User | null): CommandSealing {
  if (isSame(sealing.user, user)) return sealing;
  const { bounding } = sealing.isolation.capabilities;
  const capabilities = { bounding, own: user === null ? bounding : [] };
  return { ...sealing, user, isolation: { ...sealing.isolation, capabilities } };
}

/** `where`: of commands that do not differ. Throws for what the task cannot have. */
export function surroundingsAs(
  { directory, env: names, privileged, user: asked }: ExecIdentity,
  frame: CommandFrame,
  where: Surroundings,
  tools: Tools,
): Surroundings {
  if (privileged) throw new Error("the exec driver runs no command with more privileges than its task");
  if (directory.includes("\0")) throw new Error(`invalid directory ${JSON.stringify(directory)}`);
  const own = frame.kind === "plain" ? frame.user : frame.sealing.user;
  const user = asked === "" ? own : userNamed(asked);
  const home = isSame(user, own) ? {} : { HOME: user === null ? userInfo().homedir : user.home };
  const env = environmentWith({ ...where.env, ...home }, names);
  if (frame.kind === "sealed") {
    const sealing = { ...sealingFor(frame.sealing, user), env };
    return { ...where, env, prefix: sealedLater(sealing, tools, { ...frame.place, directory }) };
  }
  const { joins, root } = frame;
  const as = rootAndUser(root, user, tools);
  if (root !== "") {
    if (directory !== "")
      throw new Error("a command in a task with a chroot starts in its root: it has no other directory");
    return { ...where, env, prefix: [...joins, ...foreignNames(env, tools), ...as] };
  }
  const enter = directory === "" ? [] : [shell, "-c", 'cd -- "$1" && shift && exec "$@"', "sh", directory];
  return { ...where, env, prefix: [...joins, ...as, ...enter, ...foreignNames(env, tools)] };
}
