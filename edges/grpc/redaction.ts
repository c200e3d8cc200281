/**
 * Hides fields of responses by the caller's role, in addition to those that Control and Watch hide from everybody
 * (`machines/redaction.ts`).
 *
 * RD1: data that cannot be decoded is omitted as a whole.
 * RD2: `read-only` sees no values of environments, driver options and driver settings, and no registry credentials: in practice
 *      all of them contain passwords. Names remain, so that a reader sees which are set.
 * RD3: nobody below `admin` sees join tokens: whoever has one can become a manager.
 *
 * Messages are never modified: the result is a copy that shares the unchanged parts.
 */
import { DriverSpec, ExecSpec } from "../../proto/gen/messages.ts";
import { isAtLeast, type Role } from "../../runtime/user-roles.ts";

/** Replaces a value. */
export const notShown = "(not shown)";

/** Hides the value of `NAME=value`; an entry without `=` is returned unchanged. */
export function nameAlone(entry: string): string {
  const at = entry.indexOf("=");
  return at < 0 ? entry : `${entry.slice(0, at)}=${notShown}`;
}

/** Hides every value. */
export function namesAlone(values: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.keys(values).map((name) => [name, notShown]));
}

/** The payload of a process or a driver's task without values; empty if it is neither or cannot be decoded (RD1). */
export function payloadWithoutValues(kind: string, typeUrl: string, bytes: Uint8Array): Uint8Array {
  return driverBytes(typeUrl, bytes) ?? (kind === "exec" ? execBytes(bytes) : null) ?? new Uint8Array();
}

function driverBytes(typeUrl: string, bytes: Uint8Array): Uint8Array | null {
  if (!/(?:^|\/)muster\.v1\.DriverSpec$/.test(typeUrl)) return null;
  try {
    const spec = DriverSpec.decode(bytes);
    const config = spec.config === "" ? "" : JSON.stringify(notShown);
    return DriverSpec.encode(DriverSpec.patch(spec, { env: spec.env.map(nameAlone), config }));
  } catch {
    return null;
  }
}

function execBytes(bytes: Uint8Array): Uint8Array | null {
  try {
    const spec = ExecSpec.decode(bytes);
    return ExecSpec.encode(ExecSpec.patch(spec, { env: spec.env.map(nameAlone) }));
  } catch {
    return null;
  }
}

type Fields = Readonly<Record<string, unknown>>;
/** The value of a field that the role sees; undefined if there is no rule for the field. */
type Rule = (key: string, held: unknown) => unknown;

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array);
}

/** Drivers of logs, mounts and volumes, and external CAs. Networks have fields of the same name, without secrets. */
const driverFields: ReadonlySet<string> = new Set(["logDriver", "driverConfig", "driver"]);
/**
 * Fields whose values a reader does not see in the history (RD2), by their names there (`machines/history/words.ts`). The key of
 * a map entry, or the name of a variable, follows.
 */
const historyOfValues: readonly string[] = [
  "driver config options", // NetworkSpec.driver_config.options
  "env", // ContainerSpec.env, ExecSpec.env
  "external CA", // CAConfig.external_cas
  "ipam driver options", // IPAMOptions.driver.options
  "log driver", // TaskSpec.log_driver
  "mount", // Mount.volume_options.driver_config
  "options", // SecretSpec.driver.options, VolumeSpec.driver.options
  "task defaults log driver options", // TaskDefaults.log_driver.options
];

function withoutJoinTokens(key: string): unknown {
  return key === "joinTokens" ? null : undefined;
}

function withoutValues(key: string, held: unknown): unknown {
  if (key === "joinTokens") return null;
  if (key === "env" && Array.isArray(held)) return (held as readonly string[]).map(nameAlone);
  if (key === "registryAuth") return held === "" ? "" : notShown;
  if (key === "generic" && isFields(held)) {
    const { kind, payload } = held as { readonly kind?: unknown; readonly payload?: unknown };
    if (!isFields(payload)) return undefined;
    const { type_url: typeUrl, value } = payload;
    const bytes = value instanceof Uint8Array ? value : new Uint8Array();
    const shown = payloadWithoutValues(String(kind), String(typeUrl), bytes);
    return copyWith(held, { payload: copyWith(payload, { value: shown }) });
  }
  if (driverFields.has(key) && isFields(held) && isFields(held["options"]))
    return copyWith(held, { options: namesAlone(held["options"] as Readonly<Record<string, string>>) });
  if (key === "externalCas" && Array.isArray(held))
    return (held as readonly Fields[]).map((ca) =>
      copyWith(ca, { options: namesAlone(ca["options"] as Readonly<Record<string, string>>) }),
    );
  // Of HistoryEntry only.
  if (key === "fields" && Array.isArray(held)) return (held as readonly unknown[]).map(changeWithoutValues);
  return undefined;
}

function holdsValues(field: string): boolean {
  return historyOfValues.some((name) => field === name || field.startsWith(`${name} `));
}

function changeWithoutValues(change: unknown): unknown {
  if (!isFields(change)) return change;
  const { field, old, new: now } = change;
  if (typeof field !== "string" || !holdsValues(field)) return change;
  return copyWith(change, { old: old === "" ? "" : notShown, new: now === "" ? "" : notShown });
}

/** Messages have their defaults on their prototypes. Fields unknown to this version are dropped (RD1). */
function copyWith(message: Fields, changed: Fields): Fields {
  const Type = message.constructor as new (fields: object) => Fields;
  return new Type({ ...message, ...changed });
}

class Redaction {
  readonly #rule: Rule;
  /** By object of the store, since responses share them. */
  readonly #known = new WeakMap<object, unknown>();

  constructor(rule: Rule) {
    this.#rule = rule;
  }

  of(value: unknown): unknown {
    if (Array.isArray(value)) return this.#list(value as readonly unknown[]);
    if (!isFields(value)) return value;
    const known = this.#known.get(value);
    if (known !== undefined) return known;
    const shown = this.#fields(value);
    if (isFields(value["meta"])) this.#known.set(value, shown);
    return shown;
  }

  #list(values: readonly unknown[]): readonly unknown[] {
    const shown = values.map((value) => this.of(value));
    return shown.every((value, at) => value === values[at]) ? values : shown;
  }

  #fields(message: Fields): Fields {
    let changed: Record<string, unknown> | null = null;
    for (const key of Object.keys(message)) {
      const held = message[key];
      const ruled = this.#rule(key, held);
      const shown = ruled === undefined ? this.of(held) : ruled;
      if (shown !== held) (changed ??= {})[key] = shown;
    }
    return changed === null ? message : copyWith(message, changed);
  }
}

const forReaders = new Redaction(withoutValues);
const forOperators = new Redaction(withoutJoinTokens);

/** The response as a user with this role sees it. */
export function shownTo<Message>(role: Role, response: Message): Message {
  if (isAtLeast(role, "admin")) return response;
  return (isAtLeast(role, "operator") ? forOperators : forReaders).of(response) as Message;
}
