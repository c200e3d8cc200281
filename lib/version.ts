/** The version of Muster, from package.json, and the commit that a package was built from. */
import packageJson from "../package.json" with { type: "json" };
import { installedFile } from "./installation.ts";

export const version: string = packageJson.version;

export interface BuildInfo {
  readonly commit: string;
  /** Of the commit, in ISO 8601. */
  readonly date: string;
}

/** Null in a checkout. */
export function packagedBuild(): BuildInfo | null {
  try {
    return JSON.parse(installedFile("build.json").toString()) as BuildInfo;
  } catch {
    return null;
  }
}
