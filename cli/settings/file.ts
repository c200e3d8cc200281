/**
 * Settings from a YAML file: a mapping whose keys are the flags without their dashes. A repeated flag takes a list, or one value;
 * one of `KEY=VALUE` pairs takes a mapping, too. Errors name file, line, column and key.
 */
import { readFileSync } from "node:fs";
import { UserError } from "../../lib/user-error.ts";
import type { FlagDescription } from "../help/description.ts";
import { didYouMean, similarTo } from "../help/suggestion.ts";
import { Mistake, plainOf, textOf, type MappingNode, type Node, type Place } from "../stack/located.ts";
import { parseYaml } from "../stack/yaml.ts";
import { settingFlags, type Setting, type Settings, type SettingValue } from "./layers.ts";

/** A file of settings has some dozen lines; a larger one is another file. */
const bytesMax = 1024 * 1024;

function at({ column = 1, file, line }: Place): string {
  return `${file}:${line}:${column}`;
}

function mistake(place: Place, key: string, problem: string): UserError {
  return new UserError(`${at(place)}: ${key === "" ? "" : `${key} `}${problem}`);
}

/** Throws UserError. */
function textAt(node: Node, key: string): string {
  if (node.kind !== "scalar") throw mistake(node.at, key, "must be a single value");
  const text = textOf(node);
  if (text === "") throw mistake(node.at, key, "has no value: remove the key to use the default");
  return text;
}

const isOfPairs = ({ value = "" }: FlagDescription): boolean => /^[A-Z]+=/.test(value);
const takesJson = ({ value = "" }: FlagDescription): boolean => value.includes("=JSON");

/** Throws UserError. */
function listAt(flag: FlagDescription, node: Node): readonly string[] {
  if (node.kind === "list") return node.items.map((item, index) => textAt(item, `${flag.name}[${index}]`));
  if (node.kind === "scalar") return [textAt(node, flag.name)];
  if (!isOfPairs(flag)) throw mistake(node.at, flag.name, "must be a list, or a single value");
  return [...node.entries].flatMap(([key, { value }]) => {
    const path = `${flag.name}.${key}`;
    if (takesJson(flag) && value.kind !== "scalar") return [`${key}=${JSON.stringify(plainOf(value))}`];
    const values = value.kind === "list" ? value.items : [value];
    return values.map((each) => `${key}=${textAt(each, path)}`);
  });
}

/** Throws UserError. */
function valueAt(flag: FlagDescription, node: Node): SettingValue {
  if (!flag.takesValue) {
    if (node.kind === "scalar" && typeof node.value === "boolean") return node.value;
    throw mistake(node.at, flag.name, "must be true or false");
  }
  return flag.isRepeated ? listAt(flag, node) : textAt(node, flag.name);
}

/** Throws UserError. */
function mappingIn(text: string, file: string): MappingNode {
  try {
    return parseYaml(text, file, "must be a mapping of settings, such as 'log-level: debug'");
  } catch (error) {
    if (error instanceof Mistake) throw mistake(error.at, error.path, error.problem);
    throw error;
  }
}

/** `file`: its name in errors. Throws UserError. */
export function settingsIn(text: string, file: string, flags: readonly FlagDescription[]): Settings {
  const root = mappingIn(text, file);
  const byName = new Map(settingFlags(flags).map((flag) => [flag.name, flag]));
  const found = new Map<string, Setting>();
  for (const [key, { at: place, value }] of root.entries) {
    const flag = byName.get(key);
    if (flag === undefined) {
      if (flags.some(({ name }) => name === key))
        throw mistake(place, key, "can only be set on the command line: remove it from the file");
      const guess = didYouMean(similarTo(key.replaceAll("_", "-").replace(/^-+/, ""), [...byName.keys()]));
      throw mistake(place, key, `is not a setting: ${guess}see docs/configuration.md`);
    }
    found.set(key, { value: valueAt(flag, value), origin: `${at(place)}: ${key}` });
  }
  return found;
}

/** Throws UserError. */
export function readSettings(path: string, flags: readonly FlagDescription[]): Settings {
  return settingsIn(settingsText(path), path, flags);
}

/** Throws UserError. */
export function settingsText(path: string): string {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    throw new UserError(`cannot read the configuration file ${path}: ${(error as Error).message.split(",")[0]}`, {
      cause: error,
    });
  }
  if (bytes.byteLength > bytesMax)
    throw new UserError(`${path} has more than ${bytesMax} bytes: it is not a configuration file`);
  return bytes.toString("utf8");
}
