/** The version of Muster, from package.json, and the commit that a package was built from. */
import packageJson from "../package.json" with { type: "json" };
import { installedFile } from "./installation.ts";

export const version: string = packageJson.version;

/** Exact versions of the packages that Muster is built with, by name. */
export const packages: Readonly<Record<string, string>> = packageJson.dependencies;

export interface BuildInfo {
  readonly commit: string;
  /** Of the commit, in ISO 8601. */
  readonly date: string;
  /** Whether the checkout had changes that the commit does not contain. */
  readonly changes: boolean;
}

/** Null in a package of an unknown commit, and undefined in a checkout. */
export function packagedBuild(): BuildInfo | null | undefined {
  let text: string;
  try {
    text = installedFile("build.json").toString();
  } catch {
    return undefined;
  }
  return JSON.parse(text) as BuildInfo | null;
}
