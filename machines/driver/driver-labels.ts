/**
 * What a node tells of its driver plugins, as labels of its engine: the one part of a node's description that has room for
 * it, in a form that constraints can use and that every manager carries, SwarmKit's as well.
 *
 *   muster.driver.<kind>.health   `healthy`, `unhealthy`, `undetected`, `restarting`, `removed` …
 *   muster.driver.<kind>.reason   why, where there is something to say
 *   muster.driver.<kind>.version
 *   muster.driver.<kind>.schema   of its tasks' configuration: a hashicorp.nomad.plugins.shared.hclspec.Spec, in base64
 *   muster.network.reason         why it makes no networks for tasks, where it does not
 *   muster.names.reason           why its tasks cannot ask it for names of services, where they cannot
 *   muster.network.tunnel         `auto`, or the address that other nodes' tunnels reach it at, where it has one
 *   <attribute>                   each as the driver calls it, such as `driver.podman.version`
 */
import { nodeLocalDrivers } from "../allocation/network.ts";

const prefix = "muster.driver.";

/** A driver may say what it likes; a node's description is one message that every replica keeps. */
const attributesMax = 100;
const textMax = 256;
/** Bytes. Podman's has about 5,000, and it is the largest of the known ones. */
const schemaMax = 24 * 1024;

export interface DriverReport {
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
    // Ours are ours alone, whatever a driver calls its own.
    if (name !== "" && !name.startsWith(prefix)) labels[name.slice(0, textMax)] = value.slice(0, textMax);
  }
  labels[`${prefix}${kind}.health`] = health;
  if (reason !== "") labels[`${prefix}${kind}.reason`] = reason.slice(0, textMax);
  if (version !== "") labels[`${prefix}${kind}.version`] = version.slice(0, textMax);
  if (schema !== null && schema.length <= schemaMax) labels[`${prefix}${kind}.schema`] = base64Of(schema);
  return labels;
}

/** Why a node makes no networks for its tasks. */
const networkReason = "muster.network.reason";

const networkTunnel = "muster.network.tunnel";
/** Other nodes reach it where managers do. */
const tunnelAuto = "auto";

/** `problem`: why it makes none; null: it does. `address`: where its tunnel is; null: at the address that managers see. */
export function networkLabels(problem: string | null, address: string | null = null): Readonly<Record<string, string>> {
  return problem === null ? { [networkTunnel]: address ?? tunnelAuto } : { [networkReason]: problem.slice(0, textMax) };
}

/** `problem`: why tasks cannot ask their node for names of services; empty: they can, or there are none. */
export function namesLabels(problem: string): Readonly<Record<string, string>> {
  return problem === "" ? {} : { "muster.names.reason": problem.slice(0, textMax) };
}

/** Null: the node has no tunnel; empty: it is where managers see the node. */
export function tunnelAddressOf(labels: Readonly<Record<string, string>>): string | null {
  const told = labels[networkTunnel] ?? null;
  return told === tunnelAuto ? "" : told;
}

/** Empty: it makes them, or says nothing. */
export function networkProblemOf(labels: Readonly<Record<string, string>>): string {
  return labels[networkReason] ?? "";
}

/** What a node says of one of its drivers. */
export interface NodeDriver {
  readonly kind: string;
  readonly health: string;
  readonly reason: string;
  readonly version: string;
}

/** By kind, in the order of their names. */
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

/** The schema that a node reports of a driver's tasks, decoded and as it is written; null: it reports none. */
export function schemaLabel(
  labels: Readonly<Record<string, string>>,
  kind: string,
): { readonly text: string; readonly bytes: Uint8Array } | null {
  const text = labels[`${prefix}${kind}.schema`] ?? "";
  const bytes = text === "" ? null : bytesOf(text);
  return bytes === null ? null : { text, bytes };
}

/** One of an engine's own, which containers can ask for. */
export interface EnginePlugin {
  readonly type: "Network" | "Volume" | "Log";
  readonly name: string;
}

const engineAttributes = {
  Network: "driver.docker.networks",
  Volume: "driver.docker.volumes",
  Log: "driver.docker.logs",
} as const;

/** What the docker driver tells of its engine. The networks of a swarm are not its to give: the engine is in none. */
export function enginePlugins(labels: Readonly<Record<string, string>>): readonly EnginePlugin[] {
  const plugins: EnginePlugin[] = [];
  for (const type of ["Network", "Volume", "Log"] as const) {
    for (const name of (labels[engineAttributes[type]] ?? "").split(","))
      if (name !== "" && (type !== "Network" || nodeLocalDrivers.has(name))) plugins.push({ type, name });
  }
  return plugins;
}

/** Whether a label is one of this file's, which people read in another form. */
export function isDriverLabel(name: string): boolean {
  return name.startsWith(prefix);
}

function base64Of(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** Null for what is no base64. */
function bytesOf(text: string): Uint8Array | null {
  try {
    return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  } catch {
    return null;
  }
}
