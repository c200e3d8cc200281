/** `muster version`: the version of this command, where it comes from, and what it speaks. */
import { packagedBuild, version } from "../lib/version.ts";

export function versionText(): string {
  const build = packagedBuild();
  const from = build === null ? "a checkout" : `${build.commit.slice(0, 12)}, ${build.date.slice(0, 10)}`;
  return `muster ${version} (${from}; Node ${process.versions.node})`;
}
