/**
 * A node's report on its driver plugins, as labels of its engine: the only part of a node's description that has space for
 * it, that constraints can use, and that every manager stores, including SwarmKit's.
 *
 *   muster.driver.<kind>.health   `healthy`, `unhealthy`, `undetected`, `restarting`, `removed` …
 *   muster.driver.<kind>.reason   the reason for that health, if any
 *   muster.driver.<kind>.version
 *   muster.driver.<kind>.schema   of the task configuration: a hashicorp.nomad.plugins.shared.hclspec.Spec, in base64
 *   muster.network.reason         why the node creates no networks for tasks, if it does not
 *   muster.names.reason           why its tasks cannot resolve service names, if they cannot
 *   muster.network.tunnel         `auto`, or the address at which other nodes reach its tunnel, if it has one
 *   <attribute>                   under the driver's own name, such as `driver.podman.version`
 */
import { nodeLocalDrivers } from "../allocation/network.ts";

const prefix = "muster.driver.";

/** A driver may send any attributes, and every replica stores the node's description, a single message. */
const attributesMax = 100;
const textMax = 256;
/** Bytes. The largest known schema, Podman's, has about 5,000. */
const schemaMax = 24 * 1024;

interface DriverReport {
  readonly health: string;
  readonly reason: string;
  readonly version: string;
  readonly attributes: readonly (readonly [string, string])[];
  /** Encoded; null: its tasks have no configuration. */
  readonly schema: Uint8Array | null;
}

export function driverLabels(kind: string, report: DriverReport): Readonly<Record<string, string>> {
  const { attributes, health, reason, schema, version } = report;
  const labels: Record<string, string> = {};
  for (const [name, value] of attributes.slice(0, attributesMax)) {
    // Drivers cannot set labels with our prefix.
    if (name !== "" && !name.startsWith(prefix)) labels[name.slice(0, textMax)] = value.slice(0, textMax);
  }
  labels[`${prefix}${kind}.health`] = health;
  if (reason !== "") labels[`${prefix}${kind}.reason`] = reason.slice(0, textMax);
  if (version !== "") labels[`${prefix}${kind}.version`] = version.slice(0, textMax);
  if (schema !== null && schema.length <= schemaMax) labels[`${prefix}${kind}.schema`] = base64Of(schema);
  return labels;
}

/** Why the node creates no networks for its tasks. */
const networkReason = "muster.network.reason";

const networkTunnel = "muster.network.tunnel";
/** Other nodes reach it at the address that managers see. */
const tunnelAuto = "auto";

/**
 * `problem`: why the node creates no networks; null if it does. `address`: of its tunnel; null: the address that managers
 * see.
 */
export function networkLabels(problem: string | null, address: string | null = null): Readonly<Record<string, string>> {
  return problem === null ? { [networkTunnel]: address ?? tunnelAuto } : { [networkReason]: problem.slice(0, textMax) };
}

/** `problem`: why tasks cannot resolve service names on their node; empty if they can, or if there are none. */
export function namesLabels(problem: string): Readonly<Record<string, string>> {
  return problem === "" ? {} : { "muster.names.reason": problem.slice(0, textMax) };
}

/** Null: the node has no tunnel; empty: the tunnel is at the address that managers see. */
export function tunnelAddressOf(labels: Readonly<Record<string, string>>): string | null {
  const told = labels[networkTunnel] ?? null;
  return told === tunnelAuto ? "" : told;
}

/** Empty if the node creates networks or reports nothing. */
export function networkProblemOf(labels: Readonly<Record<string, string>>): string {
  return labels[networkReason] ?? "";
}

/** A node's report on one of its drivers. */
interface NodeDriver {
  readonly kind: string;
  readonly health: string;
  readonly reason: string;
  readonly version: string;
}

/** By kind, sorted by name. */
export function driversOf(labels: Readonly<Record<string, string>>): readonly NodeDriver[] {
  const drivers: NodeDriver[] = [];
  for (const name of Object.keys(labels).sort()) {
    if (!name.startsWith(prefix) || !name.endsWith(".health")) continue;
    const kind = name.slice(prefix.length, -".health".length);
    const of = (what: string): string => labels[`${prefix}${kind}.${what}`] ?? "";
    drivers.push({ kind, health: of("health"), reason: of("reason"), version: of("version") });
  }
  return drivers;
}

/** The reported schema of a driver's task configuration, decoded and in its label form; null if none is reported. */
export function schemaLabel(
  labels: Readonly<Record<string, string>>,
  kind: string,
): { readonly text: string; readonly bytes: Uint8Array } | null {
  const text = labels[`${prefix}${kind}.schema`] ?? "";
  const bytes = text === "" ? null : bytesOf(text);
  return bytes === null ? null : { text, bytes };
}

/** A plugin of an engine that containers can use. */
interface EnginePlugin {
  readonly type: "Network" | "Volume" | "Log";
  readonly name: string;
}

const engineAttributes = {
  Network: "driver.docker.networks",
  Volume: "driver.docker.volumes",
  Log: "driver.docker.logs",
} as const;

/** The plugins of the docker driver's engine. It cannot offer networks of a swarm: its engine is in none. */
export function enginePlugins(labels: Readonly<Record<string, string>>): readonly EnginePlugin[] {
  const plugins: EnginePlugin[] = [];
  for (const type of ["Network", "Volume", "Log"] as const) {
    for (const name of (labels[engineAttributes[type]] ?? "").split(","))
      if (name !== "" && (type !== "Network" || nodeLocalDrivers.has(name))) plugins.push({ type, name });
  }
  return plugins;
}

/** Whether a label is one of this file's, which people see in another form. */
export function isDriverLabel(name: string): boolean {
  return name.startsWith(prefix);
}

function base64Of(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** Null if the text is not base64. */
function bytesOf(text: string): Uint8Array | null {
  try {
    return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  } catch {
    return null;
  }
}
