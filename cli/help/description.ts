/** Descriptions of commands and their flags: input of help, completion and the reference page. */

/** Help of a flag; flags of one group are listed together, under the group's name. */
export interface FlagHelp {
  readonly group?: string;
  /** Placeholder of the value, in capitals. */
  readonly value?: string;
  /** Description; ends with the default in parentheses. */
  readonly help?: string;
  /** Possible values, for completion. */
  readonly completes?: Completable | readonly string[];
  /** Only the command line can set it: it must not be repeated at each start. */
  readonly onlyOnce?: true;
  /** A flag that this one replaces when the other is set by something less specific, such as the file. */
  readonly excludes?: string;
  /** For a flag that names a file with a secret: the credential of the service manager (`muster_NAME`), if the flag named by `for` is set. */
  readonly credential?: { readonly name: string; readonly for: string };
  /** Whether SIGHUP applies a changed value. */
  readonly reloads?: true;
}

/** A word that a shell can complete: a cluster object by name, a file, a ready scenario, or a command. */
export type Completable =
  | "actor"
  | "config"
  | "file"
  | "job"
  | "network"
  | "node"
  | "secret"
  | "policy"
  | "process"
  | "scenario"
  | "service"
  | "stack"
  | "task"
  | "verb"
  | "volume";

export interface Example {
  /** The command line as typed. */
  readonly line: string;
  /** Its purpose, as half a sentence. */
  readonly does: string;
}

export interface FlagDescription extends FlagHelp {
  /** Without its dashes. */
  readonly name: string;
  readonly short: string | null;
  readonly takesValue: boolean;
  readonly isRepeated: boolean;
  /** Whether the environment and a file can set it (`cli/settings/`). */
  readonly isSetting: boolean;
}

export interface CommandDescription {
  readonly name: string;
  readonly operands: string;
  readonly summary: string;
  readonly flags: readonly FlagDescription[];
  readonly examples: readonly Example[];
  readonly stopsAtOperand: boolean;
  /** Whether its flags can also be set by the environment and a file. */
  readonly isConfigurable: boolean;
  /** Null: completion guesses. */
  readonly completes: readonly Completable[] | null;
}
