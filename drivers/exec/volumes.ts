/** A process's cluster volumes: links in a directory of its own, named by their targets, to where plugins mounted them. */
import { mkdir, rm, symlink } from "node:fs/promises";
import { dirname, join, normalize } from "node:path";
import type { TaskVolume } from "../../actors/agent/agent-ports.ts";

/** Null for a target that leads out of the directory. */
export function relativeTarget(target: string): string | null {
  const path = normalize(target.replace(/^\/+/, "")).replace(/\/+$/, "");
  return path === "" || path === "." || path === ".." || path.startsWith("../") ? null : path;
}

/** Makes `directory` anew with a link for each volume. Rejects for targets that cannot be, as one inside another. */
export async function linkVolumes(directory: string, volumes: readonly TaskVolume[]): Promise<void> {
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory, { mode: 0o711 });
  for (const { path, target } of volumes) {
    const name = relativeTarget(target);
    if (name === null) throw new Error(`a volume cannot be at '${target}'`);
    await mkdir(dirname(join(directory, name)), { recursive: true, mode: 0o711 });
    await symlink(path, join(directory, name));
  }
}
