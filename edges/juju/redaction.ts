/**
 * Redacts specs for users with the role `read-only`: values of environment variables, options of drivers and registry
 * credentials, which often contain passwords. Names remain visible. Control itself never returns the content of secrets.
 *
 * RD1: a payload that cannot be decoded is omitted as a whole.
 */
import { nameAlone, namesAlone, notShown, payloadWithoutValues } from "../grpc/redaction.ts";
import type { Identity } from "../../runtime/ports/json-api.ts";
import { isAtLeast } from "../../runtime/user-roles.ts";
import type { Json } from "./results.ts";

/** Agents see the environment of their own tasks, which they run anyway. */
export function seesValues({ identity }: { readonly identity: Identity }): boolean {
  return identity.kind !== "user" || isAtLeast(identity.role, "operator");
}

export { namesAlone, notShown } from "../grpc/redaction.ts";

function textOf(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

type Fields = Readonly<Record<string, Json>>;

const isFields = (value: Json | undefined): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Drivers of logs, mounts and volumes. Networks use the same name, without secrets. */
const driverFields = new Set(["logDriver", "driverConfig", "driver"]);

/** Redacts a response of Control in JSON, with its messages' field names. */
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

/** Specs of processes and driver tasks are nested messages; other kinds are unknown (RD1). */
function redactedPayload({ kind, payload }: Fields): Json {
  if (!isFields(payload)) return null;
  const bytes = Buffer.from(textOf(payload["value"]), "base64");
  const value = payloadWithoutValues(textOf(kind), textOf(payload["type_url"]), bytes);
  return { ...payload, value: Buffer.from(value).toString("base64") };
}
