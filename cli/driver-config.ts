/** A driver's configuration in JSON or YAML, given on the command line or in a file. */
import { readFileSync } from "node:fs";
import { UserError } from "../lib/user-error.ts";
import type { PlainValue } from "../processes/drivers.ts";

/** `text`, or `@FILE`. Errors are UserErrors that begin with `what`. */
export async function driverConfigFrom(
  text: string,
  what: string,
): Promise<{ readonly [key: string]: PlainValue } | null> {
  const isFile = text.startsWith("@");
  const source = isFile ? read(text.slice(1), what) : text;
  const { yamlValue } = await import("./stack/yaml.ts");
  const value = yamlValue(source, isFile ? text.slice(1) : what) as PlainValue;
  if (value === null) return null;
  if (typeof value !== "object" || Array.isArray(value))
    throw new UserError(`${what}: invalid driver configuration: expected an object such as {"image": "…"}`);
  return value as { readonly [key: string]: PlainValue };
}

function read(path: string, what: string): string {
  try {
    return readFileSync(path === "-" ? 0 : path, "utf8");
  } catch (error) {
    throw new UserError(`${what}: cannot read ${path}: ${(error as Error).message}`, { cause: error });
  }
}
