/** Scenarios that are installed with the program, in `simulation/scenarios/`, and the cluster that they use by default. */
import { installedFile, installedNames, installedPath } from "../../lib/installation.ts";
import { child, textOf } from "../stack/located.ts";
import { parseYaml } from "../stack/yaml.ts";

const folder = "simulation/scenarios/";
const extension = ".yaml";

export interface InstalledText {
  /** For messages. */
  readonly path: string;
  readonly text: string;
}

function textOfInstalled(path: string): InstalledText {
  return { path: installedPath(path), text: installedFile(path).toString() };
}

export function sampleCluster(): InstalledText {
  return textOfInstalled("simulation/sample-cluster.yaml");
}

/** Sorted names. */
export function readyScenarios(): readonly string[] {
  return installedNames(folder)
    .filter((file) => file.endsWith(extension))
    .map((file) => file.slice(0, -extension.length))
    .toSorted();
}

export function readyScenario(name: string): InstalledText {
  return textOfInstalled(`${folder}${name}${extension}`);
}

/** In one sentence. */
export function readyDescription(name: string): string {
  const description = child(parseYaml(readyScenario(name).text, name), "description");
  return description === undefined ? "" : textOf(description);
}
