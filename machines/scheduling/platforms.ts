/** The platforms that a task can run on: an empty part matches any, and some architectures have two names. */
import type { Node, Placement, Platform } from "../../proto/gen/messages.ts";

const architectures: Readonly<Record<string, string>> = { x86_64: "amd64", aarch64: "arm64" };

/** `own`: the node's platform; null: not reported. */
export function runsOneOf(platforms: readonly Platform[], own: Platform | null): boolean {
  if (own === null) return false;
  return platforms.some(
    ({ architecture, os }) =>
      (architecture === "" || canonical(architecture) === canonical(own.architecture)) && (os === "" || os === own.os),
  );
}

/** Whether the node has one of the placement's platforms; true if it lists none. */
export function meetsPlatforms(placement: Placement | null, node: Node): boolean {
  const platforms = placement?.platforms ?? [];
  return platforms.length === 0 || runsOneOf(platforms, node.description?.platform ?? null);
}

function canonical(architecture: string): string {
  return architectures[architecture] ?? architecture;
}
