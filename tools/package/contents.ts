/** The files in a package. */
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";

/** Files and folders that every package contains besides code, from the top; read through lib/installation.ts. */
export const installedFolders: readonly string[] = [
  "ui/dist",
  "simulation/scenarios",
  "simulation/sample-cluster.yaml",
];

export function filesBelow(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) =>
    statSync(join(folder, file)).isFile(),
  );
}
