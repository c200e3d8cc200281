/** The surroundings of a command in a task: its environment, its directory, and the programs before it. */
import type { Tools } from "../../linux/system-tools.ts";
import type { User } from "../../linux/user.ts";
import type { LaterPlace, Sealing } from "./isolation.ts";

export interface Surroundings {
  /** The programs before the command that enter the task's network, mounts, root and user. */
  readonly prefix: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Absolute path. */
  readonly directory: string;
  /** Whether the prefix remains as the command's parent, and kills it on SIGTERM (sealing.ts). */
  readonly isJoined?: boolean;
}

/** The parts of a task that its commands share; plain JSON, since a task outlives the driver's process. */
export type CommandFrame =
  /** `joins`: the programs that enter the task's namespaces and directory. */
  | { readonly kind: "plain"; readonly joins: readonly string[]; readonly root: string; readonly user: User | null }
  | { readonly kind: "sealed"; readonly sealing: CommandSealing; readonly place: LaterPlace };

export type CommandSealing = Omit<Sealing, "env">;

export function rootAndUser(root: string, user: User | null, tools: Tools): readonly string[] {
  if (root === "" && user === null) return [];
  if (tools.chroot === null)
    throw new Error("cannot change the task's root or user: chroot is not installed on this node");
  const as = user === null ? [] : [`--userspec=+${user.uid}:+${user.gid}`, `--groups=${user.groups.join(",")}`];
  return root === "" ? [tools.chroot, ...as, "--skip-chdir", "/"] : [tools.chroot, ...as, root];
}

/**
 * Shells pass on only valid variable names. Any other variable is set by `env`, and is visible in the process list until the
 * command starts.
 */
export function foreignNames(env: Readonly<Record<string, string>>, tools: Tools): readonly string[] {
  const foreign = Object.entries(env).filter(([name]) => !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name));
  if (foreign.length === 0) return [];
  if (tools.env === null)
    throw new Error(`cannot set the variable ${foreign[0]?.[0]}: env is not installed on this node`);
  return [tools.env, ...foreign.map(([name, value]) => `${name}=${value}`)];
}
