/** Restricts a task's access to the node's files by Landlock: paths with permissions, like Nomad's exec2. */
import { statSync } from "node:fs";
import { isAbsolute, normalize } from "node:path";
import type { SealingPlan } from "./sealing.ts";

/** The kernel's bits. */
const right = {
  execute: 1 << 0,
  write: 1 << 1,
  read: 1 << 2,
  list: 1 << 3,
  removeFolder: 1 << 4,
  removeFile: 1 << 5,
  makeDevice: 1 << 6,
  makeFolder: 1 << 7,
  makeFile: 1 << 8,
  makeSocket: 1 << 9,
  makeFifo: 1 << 10,
  makeBlock: 1 << 11,
  makeLink: 1 << 12,
  refer: 1 << 13,
  truncate: 1 << 14,
};
/** All rights of ABI version 3 (Linux 6.2): earlier versions would allow truncating files that must not be written. */
const handled = Object.values(right).reduce((sum, bit) => sum | bit, 0);
/** Rights that apply to files other than directories. */
const ofFiles = right.execute | right.write | right.read | right.truncate;

const letters: Readonly<Record<string, number>> = {
  r: right.read | right.list,
  x: right.execute,
  w: right.write | right.truncate,
  c:
    right.removeFolder |
    right.removeFile |
    right.makeFolder |
    right.makeFile |
    right.makeSocket |
    right.makeFifo |
    right.makeLink |
    right.refer,
};

/** exec2's defaults: what every program needs. Paths that a node lacks are skipped. */
const always = [
  "rx:/bin",
  "rx:/lib",
  "rx:/lib32",
  "rx:/lib64",
  "rx:/usr",
  "rx:/sbin",
  "r:/etc/passwd",
  "r:/etc/group",
].concat(
  [
    "r:/etc/ld.so.cache",
    "r:/etc/hosts",
    "r:/etc/nsswitch.conf",
    "r:/etc/resolv.conf",
    "r:/etc/localtime",
    "r:/etc/ssl",
  ],
  ["rw:/dev/null", "rw:/dev/zero", "rw:/dev/full", "r:/dev/random", "r:/dev/urandom", "rw:/dev/tty", "r:/proc/self"],
);

interface Rule {
  readonly rights: number;
  readonly path: string;
}

function ruleOf(text: string): Rule {
  const [, perms = "", path = ""] = /^([rwcx]+):(.+)$/.exec(text) ?? [];
  if (perms === "" || !isAbsolute(path))
    throw new Error(`invalid unveil "${text}": expected PERMS:PATH, with PERMS of r, w, c and x and an absolute path`);
  const rights = Array.from(perms).reduce((sum, letter) => sum | (letters[letter] ?? 0), 0);
  return { rights, path: normalize(path) };
}

/** Throws for an invalid rule, and for a path that the node lacks. */
export function unveil(plan: SealingPlan, asked: readonly string[], own: readonly string[]): void {
  const isThere = ({ path }: Rule): boolean => statSync(path, { throwIfNoEntry: false }) !== undefined;
  const named = asked.map(ruleOf);
  const missing = named.find((rule) => !isThere(rule));
  if (missing !== undefined) throw new Error(`unveil: ${missing.path} does not exist on this node`);
  const rules = [...always.map(ruleOf), ...own.map((path) => ruleOf(`rwcx:${path}`))].filter(isThere);
  const bits = Buffer.alloc(8);
  bits.writeBigUInt64LE(BigInt(handled));
  plan.ruleset("restrict the task's files: the kernel lacks Landlock version 3 (Linux 6.2), or it is disabled", bits);
  for (const { path, rights } of [...rules, ...named]) plan.rule(path, { folder: rights, file: rights & ofFiles });
  plan.restrict("restrict the task's files by Landlock");
}
