/** Scenarios that are installed with the program, in `simulation/scenarios/`, and the cluster that they use by default. */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { child, textOf } from "../stack/located.ts";
import { parseYaml } from "../stack/yaml.ts";

const folder = fileURLToPath(new URL("../../simulation/scenarios/", import.meta.url));
const extension = ".yaml";

export const sampleCluster = fileURLToPath(new URL("../../simulation/sample-cluster.yaml", import.meta.url));

/** Sorted names. */
export function readyScenarios(): readonly string[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith(extension))
    .map((file) => file.slice(0, -extension.length))
    .toSorted();
}

export function readyScenarioPath(name: string): string {
  return `${folder}${name}${extension}`;
}

/** In one sentence. */
export function readyDescription(name: string): string {
  const description = child(parseYaml(readFileSync(readyScenarioPath(name), "utf8"), name), "description");
  return description === undefined ? "" : textOf(description);
}
