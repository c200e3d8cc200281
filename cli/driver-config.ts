/** A driver's configuration as somebody writes it: JSON, or the same in YAML, on the command line or in a file. */
import { readFileSync } from "node:fs";
import { UserError } from "./user-error.ts";

/** Plain values, as JSON knows them. */
export type PlainValue =
  | null
  | boolean
  | number
  | string
  | readonly PlainValue[]
  | { readonly [key: string]: PlainValue };

/** `text`, or `@FILE`. Throws UserError, which names `what`. */
export async function driverConfigFrom(
  text: string,
  what: string,
): Promise<{ readonly [key: string]: PlainValue } | null> {
  const isFile = text.startsWith("@");
  const source = isFile ? read(text.slice(1), what) : text;
  // The library for YAML is loaded for those who need it.
  const { yamlValue } = await import("./stack/yaml.ts");
  const value = yamlValue(source, isFile ? text.slice(1) : what) as PlainValue;
  if (value === null) return null;
  if (typeof value !== "object" || Array.isArray(value))
    throw new UserError(`${what}: a driver's configuration is an object, such as {"image": "…"}`);
  return value as { readonly [key: string]: PlainValue };
}

function read(path: string, what: string): string {
  try {
    return readFileSync(path === "-" ? 0 : path, "utf8");
  } catch (error) {
    throw new UserError(`${what}: cannot read ${path}: ${(error as Error).message}`, { cause: error });
  }
}
