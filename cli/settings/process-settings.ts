/** The settings of one process: read at its start, and read again when it is reloaded. */
import { UsageError, UserError } from "../../lib/user-error.ts";
import type { FlagDescription } from "../help/description.ts";
import type { readSettings } from "./file.ts";
import {
  fromCredentials,
  fromEnvironment,
  inOrder,
  settingFlags,
  mistypedVariables,
  type Environment,
  type Setting,
  type Settings,
  type SettingValue,
} from "./layers.ts";
import { variableOf } from "./variable.ts";

/** Values of flags, including `config`. */
type Given = Readonly<Record<string, unknown>>;

/** Path of the configuration file; empty: there is none. */
function fileOf(given: Given, environment: Environment): string {
  return (given["config"] as string | undefined) ?? environment["MUSTER_CONFIG"] ?? "";
}

export class ProcessSettings {
  readonly #flags: readonly FlagDescription[];
  readonly #given: Given;
  readonly #environment: Environment;
  readonly #readFile: typeof readSettings | null;
  #settings: Settings;

  /** Rejects with UsageError and UserError. */
  static async open(
    flags: readonly FlagDescription[],
    given: Given,
    environment: Environment,
  ): Promise<ProcessSettings> {
    // Loaded only for a process that has a file: its parser is 72 modules.
    const readFile = fileOf(given, environment) === "" ? null : (await import("./file.ts")).readSettings;
    return new ProcessSettings(flags, given, environment, readFile);
  }

  private constructor(
    flags: readonly FlagDescription[],
    given: Given,
    environment: Environment,
    readFile: typeof readSettings | null,
  ) {
    this.#flags = flags;
    this.#readFile = readFile;
    this.#given = given;
    this.#environment = { ...environment };
    this.#settings = this.#read();
  }

  #read(): Settings {
    const [flags, environment] = [this.#flags, this.#environment];
    const byFlag = new Map<string, Setting>();
    for (const [name, value] of Object.entries(this.#given))
      if (value !== undefined) byFlag.set(name, { value: value as SettingValue, origin: null });
    const file = fileOf(this.#given, environment);
    const ofFile: Settings = this.#readFile?.(file, flags) ?? new Map();
    return inOrder(flags, [byFlag, fromEnvironment(flags, environment), fromCredentials(flags, environment), ofFile]);
  }

  values(): Record<string, SettingValue> {
    return Object.fromEntries([...this.#settings].map(([name, { value }]) => [name, value]));
  }

  /** Notes about variables that are probably misspelt. */
  notes(): readonly string[] {
    return [...mistypedVariables(this.#flags, this.#environment)].map(
      ([name, meant]) => `note: ${name} is not a setting and was ignored: did you mean ${meant}?`,
    );
  }

  /** Reads everything again, and returns the names of the changed settings. Throws the errors of `open`; then nothing changes. */
  reread(): readonly string[] {
    const [before, after] = [this.#settings, this.#read()];
    const changed = this.#flags
      .map(({ name }) => name)
      .filter((name) => JSON.stringify(before.get(name)?.value) !== JSON.stringify(after.get(name)?.value));
    this.#settings = after;
    return changed;
  }

  /** The same error, with the places of the settings that it names in front; errors name them as flags. */
  located(error: unknown): unknown {
    return locatedIn(this.#settings, error);
  }

  /**
   * Removes the settings from this process's environment, so that the programs that it starts inherit neither secrets nor settings
   * of their own.
   */
  hideFrom(environment: Record<string, string | undefined>): void {
    for (const { name } of settingFlags(this.#flags)) delete environment[variableOf(name)];
    delete environment["MUSTER_CONFIG"];
  }
}

export function locatedIn(settings: Settings, error: unknown): unknown {
  if (!(error instanceof UsageError || error instanceof UserError)) return error;
  const named = Array.from(error.message.matchAll(/--([a-z][a-z-]*[a-z])/g), ([, name]) => name as string);
  const origins = [...new Set(named)].flatMap((name) => settings.get(name)?.origin ?? []);
  if (origins.length === 0) return error;
  const Kind = error instanceof UsageError ? UsageError : UserError;
  return new Kind(`${origins.join(", ")}: ${error.message}`, { cause: error });
}
