/** Users of the machine, and the ids for running a command as one of them. */
import { readFileSync } from "node:fs";

export interface User {
  readonly uid: number;
  readonly gid: number;
  /** Supplementary groups. */
  readonly groups: readonly number[];
  readonly home: string;
}

function entries(file: string): readonly (readonly string[])[] {
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => line.split(":"));
}

const isNumber = (text: string): boolean => /^\d{1,9}$/.test(text);

function groupNamed(text: string): number {
  const found = entries("/etc/group").find(([name, , gid]) => name === text || gid === text);
  if (found !== undefined) return Number(found[2]);
  if (isNumber(text)) return Number(text);
  throw new Error(`there is no group ${text} on this node`);
}

/** Null if the machine has no such user and the text is not a number. An empty text is this process's user. */
export function uidOf(text: string): number | null {
  if (text === "") return process.getuid?.() ?? null;
  const [name = ""] = text.split(":");
  const found = userEntry(name);
  return found === undefined && !isNumber(name) ? null : Number(found?.[2] ?? name);
}

function userEntry(name: string): readonly string[] | undefined {
  const users = entries("/etc/passwd");
  return users.find(([each]) => each === name) ?? users.find(([, , uid]) => uid === name);
}

/** Whether the machine has that group, but the user in `text` (as in `userNamed`) is not in it. */
export function isForeignGroup(text: string, gid: number): boolean {
  const group = entries("/etc/group").find(([, , id]) => Number(id) === gid);
  if (group === undefined) return false;
  const user = userEntry(text.split(":")[0] ?? "");
  const members = (group[3] ?? "").split(",");
  return user === undefined || (Number(user[3]) !== gid && !members.includes(user[0] ?? "\0"));
}

/**
 * Resolves `name`, `uid`, or either with `:group`. Null for an empty text, and for the driver's own user. Throws for a user
 * that the machine does not have, and if the driver may not change users.
 */
export function userNamed(text: string): User | null {
  if (text === "") return null;
  const [name = "", group] = text.split(":");
  const found = userEntry(name);
  const uid = uidOf(name);
  if (uid === null) throw new Error(`there is no user ${name} on this node`);
  const gid = group === undefined ? Number(found?.[3] ?? uid) : groupNamed(group);
  if (process.getuid?.() === uid && process.getgid?.() === gid) return null;
  if (process.getuid?.() !== 0)
    throw new Error(`cannot run as user ${text}: the driver does not run as root on this node`);
  const login = found?.[0];
  const groups = entries("/etc/group").filter(([, , , members = ""]) => members.split(",").includes(login ?? "\0"));
  return { uid, gid, groups: groups.map(([, , id]) => Number(id)), home: found?.[5] ?? "/" };
}
