/** `muster version`: the version of this command, where it comes from, and the Node that runs it. */
import { packagedBuild, version } from "../lib/version.ts";

function origin(): string {
  const build = packagedBuild();
  if (build === undefined) return "a checkout";
  if (build === null) return "a package of an unknown commit";
  return `${build.commit.slice(0, 12)}${build.changes ? " with changes" : ""}, ${build.date.slice(0, 10)}`;
}

export function versionText(): string {
  return `muster ${version} (${origin()}; Node ${process.versions.node})`;
}
