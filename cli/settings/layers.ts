/**
 * Settings of long-running processes. Each flag can also be set by an environment variable, a credential of the service manager,
 * or a key of a YAML file. The first of these that sets it counts:
 *
 * 1. the flag, `--log-level debug`
 * 2. the environment, `MUSTER_LOG_LEVEL=debug`; an empty variable sets nothing
 * 3. a credential, for flags that name a file with a secret: `$CREDENTIALS_DIRECTORY/muster_token`
 * 4. the file of `--config` or `MUSTER_CONFIG`, `log-level: debug`
 *
 * All four are derived from the same table of flags.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { UsageError } from "../../lib/user-error.ts";
import { parseBoolean } from "../boolean.ts";
import type { FlagDescription } from "../help/description.ts";
import { similarTo } from "../help/suggestion.ts";
import { variableOf } from "./variable.ts";

export type SettingValue = string | boolean | readonly string[];

export interface Setting {
  readonly value: SettingValue;
  /** Where it was set, for errors: `/etc/muster/manager.yaml:3:1: listen`, or `MUSTER_LISTEN`. Null: by a flag. */
  readonly origin: string | null;
}

/** By the name of the flag, without its dashes. */
export type Settings = ReadonlyMap<string, Setting>;

export type Environment = Readonly<Record<string, string | undefined>>;

export function settingFlags(flags: readonly FlagDescription[]): readonly FlagDescription[] {
  return flags.filter(({ isSetting }) => isSetting);
}

/** Several values of a repeated flag are written one per line. Throws UsageError. */
function fromVariable(flag: FlagDescription, text: string): SettingValue {
  if (!flag.takesValue) {
    const parsed = parseBoolean(text);
    if (parsed === null)
      throw new UsageError(`${variableOf(flag.name)}: invalid value "${text}": expected true or false`);
    return parsed;
  }
  return flag.isRepeated ? text.split(/\r?\n/).filter((line) => line.trim() !== "") : text;
}

/** Throws UsageError. */
export function fromEnvironment(flags: readonly FlagDescription[], environment: Environment): Settings {
  const found = new Map<string, Setting>();
  for (const flag of settingFlags(flags)) {
    const text = environment[variableOf(flag.name)] ?? "";
    if (text.trim() !== "") found.set(flag.name, { value: fromVariable(flag, text), origin: variableOf(flag.name) });
  }
  return found;
}

/** Variables that are almost the name of a setting, with that name. */
export function mistypedVariables(
  flags: readonly FlagDescription[],
  environment: Environment,
): ReadonlyMap<string, string> {
  const known = settingFlags(flags).map(({ name }) => variableOf(name));
  const found = new Map<string, string>();
  for (const name of Object.keys(environment)) {
    if (!name.startsWith("MUSTER_") || known.includes(name) || others.has(name)) continue;
    const [nearest] = similarTo(name, known);
    if (nearest !== undefined) found.set(name, nearest);
  }
  return found;
}

/** Variables of the commands, of programs that they start, and of tests. */
const others: ReadonlySet<string> = new Set([
  "MUSTER_CONFIG",
  "MUSTER_CONFIGS",
  "MUSTER_CONTEXT",
  "MUSTER_HOST",
  "MUSTER_NATS_SERVER",
  "MUSTER_SECRETS",
  "MUSTER_VOLUMES",
]);

/** The directory of credentials in the unit is loaded under the name `muster`: systemd joins it to the files' names by `_`. */
export function credentialName({ name }: { readonly name: string }): string {
  return ["muster", name].join("_");
}

const originOf = (credential: { readonly name: string }): string => `credential ${credentialName(credential)}`;

export function fromCredentials(flags: readonly FlagDescription[], environment: Environment): Settings {
  const folder = environment["CREDENTIALS_DIRECTORY"] ?? "";
  const found = new Map<string, Setting>();
  if (folder === "") return found;
  for (const { credential, name } of flags) {
    if (credential === undefined) continue;
    const path = join(folder, credentialName(credential));
    if (existsSync(path)) found.set(name, { value: path, origin: originOf(credential) });
  }
  return found;
}

/**
 * The first layer that sets a flag counts. A flag replaces those of later layers that it excludes (`--token` a `token-file` of
 * the file), and a credential counts only if the flag that it belongs to is set.
 */
export function inOrder(flags: readonly FlagDescription[], layers: readonly Settings[]): Settings {
  const merged = new Map<string, Setting>();
  for (const layer of layers) {
    const before = new Set(merged.keys());
    for (const { excludes, name } of flags) {
      const setting = layer.get(name);
      if (setting === undefined || before.has(name) || (excludes !== undefined && before.has(excludes))) continue;
      merged.set(name, setting);
    }
  }
  for (const { credential, name } of flags) {
    if (credential === undefined || merged.has(credential.for)) continue;
    if (merged.get(name)?.origin === originOf(credential)) merged.delete(name);
  }
  return merged;
}
