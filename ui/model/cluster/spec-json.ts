/** A service's whole spec as JSON, for what the form does not show. */
import { ServiceSpec } from "../../../proto/gen/cluster.ts";

export function specText(spec: ServiceSpec): string {
  return JSON.stringify(ServiceSpec.toJson(spec), null, 2);
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
  const isDefault = given === null || given === "" || given === 0 || given === false;
  if (read === undefined) return isDefault ? [] : [path];
  // Numbers may be given as strings, as in the JSON form of protobuf.
  return String(given) === String(read as string | number | boolean) ? [] : [path];
}

/** Either the spec, or what is wrong with the text. */
export function specFrom(text: string): ServiceSpec | string {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    return `The text is not JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
  if (typeof json !== "object" || json === null || Array.isArray(json))
    return 'Expected an object with the fields of the spec, such as {"annotations": {"name": "web"}, …}';
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
