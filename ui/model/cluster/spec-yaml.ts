/** Whole specs as YAML, to read and to edit. JSON is YAML, too. */
import { parse, stringify } from "yaml";
import { ServiceSpec } from "../../../proto/gen/cluster.ts";

/** Fields by their names in JSON, without those that are unset. `codec`: the spec's. */
export function specYaml<Spec>(codec: { toJson(message: Spec): Record<string, unknown> }, spec: Spec): string {
  // Long lines are not wrapped: what is copied stays as it was.
  return stringify(codec.toJson(spec), { lineWidth: 0 });
}

/** Paths in `given` that `read` lacks: misspelt fields, and values of the wrong kind. */
function unread(given: unknown, read: unknown, path: string): readonly string[] {
  if (Array.isArray(given)) {
    const other: readonly unknown[] = Array.isArray(read) ? read : [];
    return given.flatMap((each, index) => unread(each, other[index], `${path}[${index}]`));
  }
  if (typeof given === "object" && given !== null) {
    // An empty message, or a default value: it has no fields of its own to miss.
    const entries = Object.entries(given);
    if (read === undefined) return [path];
    const other = (typeof read === "object" ? read : {}) as Readonly<Record<string, unknown>>;
    return entries.flatMap(([key, value]) => unread(value, other[key], path === "" ? key : `${path}.${key}`));
  }
  // YAML reads 1.10 as the number 1.1: a text that looks like a number needs quotes.
  if (typeof given === "number" && typeof read === "string") return [`${path} (a text: put it in quotes)`];
  const isDefault = given === null || given === "" || given === 0 || given === false;
  if (read === undefined) return isDefault ? [] : [path];
  // Numbers may be given as strings, as in the JSON form of protobuf.
  return String(given) === String(read as string | number | boolean) ? [] : [path];
}

/** Either the spec, or what is wrong with the text. */
export function specFrom(text: string): ServiceSpec | string {
  let json: unknown;
  try {
    json = parse(text);
  } catch (error) {
    // The rest of the message quotes the line.
    const reason = error instanceof Error ? error.message.split("\n", 1)[0]?.replace(/:$/, "") : String(error);
    return `The text is not YAML: ${reason}`;
  }
  if (typeof json !== "object" || json === null || Array.isArray(json))
    return "Expected the fields of a spec, such as annotations and task";
  let spec: ServiceSpec;
  try {
    // Through bytes, so that nested messages have their defaults.
    spec = ServiceSpec.decode(ServiceSpec.encode(ServiceSpec.fromJson(json)));
  } catch (error) {
    return `The spec cannot be read: ${error instanceof Error ? error.message : String(error)}`;
  }
  const wrong = unread(json, ServiceSpec.toJson(spec), "");
  return wrong.length === 0 ? spec : `Unknown fields or values: ${wrong.join(", ")}`;
}
