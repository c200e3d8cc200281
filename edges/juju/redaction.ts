/**
 * What a user of the role `read-only` is not shown of specs: values of the environment, options of drivers and credentials of
 * registries, all of which hold passwords in practice. Names stay, so that a reader sees what is set. Content of secrets is
 * shown to nobody, and is left out by Control itself.
 *
 * RD1: what cannot be read is left out as a whole.
 */
import { DriverSpec, ExecSpec } from "../../proto/gen/messages.ts";
import { isAtLeast, type Session } from "./facade.ts";
import type { Json } from "./results.ts";

/** Stands for a value. */
export const notShown = "(not shown)";

/** Agents see the environment of what is theirs, which they run. */
export function seesValues({ identity }: Pick<Session, "identity">): boolean {
  return identity.kind !== "user" || isAtLeast(identity.role, "operator");
}

/** With each value replaced. */
export function namesAlone(values: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.keys(values).map((name) => [name, notShown]));
}

/** `NAME=value`; an entry without `=` is a name already. */
function nameAlone(entry: string): string {
  const at = entry.indexOf("=");
  return at < 0 ? entry : `${entry.slice(0, at)}=${notShown}`;
}

function textOf(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

type Fields = Readonly<Record<string, Json>>;

const isFields = (value: Json | undefined): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Drivers of logs, mounts and volumes. Networks have theirs under the same name, without anything secret. */
const driverFields = new Set(["logDriver", "driverConfig", "driver"]);

/** A response of Control as JSON, in its messages' own names. */
export function redacted(value: Json): Json {
  if (Array.isArray(value)) return (value as readonly Json[]).map(redacted);
  if (!isFields(value)) return value;
  const shown: Record<string, Json> = {};
  for (const [key, held] of Object.entries(value)) shown[key] = redactedField(key, held);
  return shown;
}

function redactedField(key: string, held: Json): Json {
  if (key === "env" && Array.isArray(held)) return (held as readonly Json[]).map((entry) => nameAlone(textOf(entry)));
  if (key === "registryAuth") return held === "" ? "" : notShown;
  if (key === "generic" && isFields(held)) return { ...held, payload: redactedPayload(held) };
  if (driverFields.has(key) && isFields(held) && isFields(held["options"]))
    return { ...held, options: namesAlone(held["options"] as Readonly<Record<string, string>>) };
  return redacted(held);
}

/** The specs of processes and driver tasks are messages within the message; nothing is known of others (RD1). */
function redactedPayload({ kind, payload }: Fields): Json {
  if (!isFields(payload)) return null;
  const typeUrl = textOf(payload["type_url"]);
  const bytes = Buffer.from(textOf(payload["value"]), "base64");
  const value = driverBytes(typeUrl, bytes) ?? (kind === "exec" ? execBytes(bytes) : null);
  return { ...payload, value: value === null ? "" : Buffer.from(value).toString("base64") };
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
