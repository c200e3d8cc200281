/** The plans that a command line names: a cluster (`--file`, `--from-cluster` or the sample) and a scenario (`--scenario`). */
import { existsSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { UsageError, UserError } from "../../lib/user-error.ts";
import type { ClusterPlan, ScenarioPlan } from "../../simulation/rehearsal/plan.ts";
import { withManager } from "../manager-client.ts";
import type { Shell } from "../shell.ts";
import type { Variables } from "../stack/interpolate.ts";
import { planFromCluster } from "./from-cluster.ts";
import { nearestOf } from "./mistakes.ts";
import { readCluster } from "./read-cluster.ts";
import { readScenario } from "./read-scenario.ts";
import { readyScenario, readyScenarios, sampleCluster, type InstalledText } from "./ready-scenarios.ts";

/** Flags of the cluster. */
export const clusterFlags = {
  file: { type: "string", value: "FILE", help: "Cluster to rehearse on, as YAML (default: a sample cluster)" },
  "from-cluster": {
    type: "boolean",
    help: "Rehearse on a copy of the running cluster, with the times and failures that its log has seen",
  },
} as const;

export const scenarioFlag = {
  type: "string",
  value: "NAME|FILE",
  help: "Scenario to rehearse: the name of a ready one (see --list), or a YAML file",
  completes: "scenario",
} as const;

export interface NamedCluster {
  /** For reports. */
  readonly name: string;
  readonly plan: ClusterPlan;
  /** How a copy differs from its cluster; one line each. */
  readonly remarks: readonly string[];
}

export interface ClusterValues {
  readonly file?: string | undefined;
  readonly "from-cluster"?: boolean | undefined;
}

const environment: Variables = { get: (name) => process.env[name] };

/** Throws UserError, also for each mistake of a file. */
export async function readClusterFor(values: ClusterValues, shell: Shell): Promise<NamedCluster> {
  const isCopied = values["from-cluster"] === true;
  if (isCopied && values.file !== undefined) throw new UsageError("choose one of --file and --from-cluster");
  if (isCopied) {
    const { plan, remarks } = await withManager(shell, (client) => planFromCluster(client, shell.now()));
    return { name: "a copy of the cluster", plan, remarks };
  }
  const { path, text } = values.file === undefined ? sampleCluster() : readText(values.file, "the cluster");
  return {
    name: values.file === undefined ? "the sample cluster" : basename(path),
    plan: readCluster(text, path, environment),
    remarks: [],
  };
}

/** `named`: a file, or the name of a ready scenario. Throws UserError. */
export function readScenarioFor(named: string, cluster: ClusterPlan): ScenarioPlan {
  const { path, text } = scenarioText(named);
  return readScenario(text, path, cluster, environment);
}

/** A name without a slash or extension is a ready scenario, unless such a file exists. */
function scenarioText(named: string): InstalledText {
  const ready = readyScenarios();
  if (ready.includes(named) && !existsSync(named)) return readyScenario(named);
  if (named.includes("/") || /\.ya?ml$/.test(named) || named === "-" || existsSync(named))
    return readText(named, "the scenario");
  const nearest = nearestOf(named, ready) ?? `ready scenarios are ${ready.join(", ")}`;
  throw new UserError(`no scenario '${named}': ${nearest}`);
}

function readText(path: string, what: string): InstalledText {
  try {
    return { path, text: readFileSync(path === "-" ? 0 : path, "utf8") };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new UserError(`cannot read ${what} ${path}: ${code === "ENOENT" ? "no such file" : message}`, {
      cause: error,
    });
  }
}
