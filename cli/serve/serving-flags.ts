/** Flags shared by several processes, and their parsing. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import {
  networkDefaults,
  networkDefaultsProblem,
  type NetworkDefaults,
} from "../../machines/allocation/network-defaults.ts";
import { parseOrigin } from "../../edges/juju/origin.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { parseHostPort, type HostPort } from "../../processes/addresses.ts";
import { RecordingRing } from "../../runtime/recording/ring.ts";
import { parseBytes } from "../values.ts";
import type { CsiSocketPaths } from "../../processes/csi.ts";
import type { ScheduledBackups } from "../../processes/manager.ts";
import { backupFlags, scheduledBackupsOf, type BackupValues } from "./backup-flags.ts";
import { csiFlag, csiSocketPaths } from "./csi-flag.ts";
import type { DockerOptions } from "../../processes/docker-api.ts";
import type { JsonOptions } from "../../processes/json-api.ts";

/** SwarmKit's port. */
export const defaultPort = 2377;
const defaultListen = `0.0.0.0:${defaultPort}`;

const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;

export const logging = {
  "log-level": {
    type: "string",
    value: "LEVEL",
    help: "Log level: trace, debug, info, warn, error, fatal or silent (default info)",
    completes: logLevels,
    reloads: true,
  },
} as const;

export const logLevelDefault = "info";

/** Throws UsageError. */
export function logLevelOf({
  "log-level": level = logLevelDefault,
}: {
  readonly "log-level"?: string | undefined;
}): string {
  if (logLevels.some((each) => each === level)) return level;
  throw new UsageError(`invalid argument "${level}" for "--log-level" flag: expected one of ${logLevels.join(", ")}`);
}

export const logFileFlag = {
  "log-file": {
    type: "string",
    value: "FILE",
    help: "File to append the log to, reopened at SIGHUP (default: standard error, or muster.log in the data dir for up and start)",
    completes: "file",
  },
} as const;

/** Where the log goes; null: to standard error. */
export function logFileOf({ "log-file": file }: { readonly "log-file"?: string | undefined }): string | null {
  return file === undefined ? null : resolve(file);
}

/** The address in a flag. Throws UserError. */
export function flagAddress(flag: string, text: string, otherwise: number = defaultPort): HostPort {
  try {
    return parseHostPort(text, otherwise);
  } catch (error) {
    if (error instanceof UserError) throw new UserError(`--${flag}: ${error.message}`, { cause: error });
    throw error;
  }
}
export const recorderFlag = {
  "recorder-size": {
    type: "string",
    value: "BYTES",
    help: "Memory for recording the last minutes of this process, for 'muster record' (default 4m, 0 = off)",
  },
} as const;

/** Smaller ones would contain less than one compressed piece. */
const recorderBytesMin = 64 * 1024;
const recorderBytesMax = 1024 * 1024 * 1024;

/** The ring of `--recorder-size`; null: it is off. Throws UsageError. */
export function recorderOf({
  "recorder-size": size,
}: {
  readonly "recorder-size"?: string | undefined;
}): RecordingRing | null {
  if (size === undefined) return new RecordingRing();
  const bytes = parseBytes(size, "recorder-size");
  if (bytes === 0) return null;
  if (bytes < recorderBytesMin || bytes > recorderBytesMax)
    throw new UsageError(`invalid argument "${size}" for "--recorder-size" flag: expected 0, or 64k to 1g`);
  return new RecordingRing(bytes);
}
export const metricsFlag = {
  type: "string",
  value: "ADDR:PORT",
  help: "Serve /metrics, /healthz and /debug/collections on this address (default: off)",
} as const;
export const serving = {
  "data-dir": {
    type: "string",
    value: "DIR",
    help: "Directory for state (up and start have a default)",
  },
  listen: {
    type: "string",
    value: "ADDR:PORT",
    help: "Listen address for nodes and other managers (default 0.0.0.0:2377)",
  },
  advertise: { type: "string", value: "ADDR[:PORT]", help: "Advertised address (default: detected)" },
  metrics: metricsFlag,
  "default-addr-pool": {
    type: "string",
    multiple: true,
    value: "CIDR",
    help: "Address pool for subnets of networks, set when the cluster is created (default 10.0.0.0/8)",
  },
  "default-addr-pool-mask-length": {
    type: "string",
    value: "BITS",
    help: "Prefix length of subnets taken from the pool (default 24)",
  },
  "data-path-port": {
    type: "string",
    value: "PORT",
    help: "UDP port for VXLAN traffic between engines (default 4789)",
  },
  "accept-log-loss": {
    type: "boolean",
    help: "Start although NATS has lost records that this manager has seen; their changes are lost",
  },
  "csi-plugin": csiFlag,
  "docker-group": {
    type: "string",
    value: "GROUP",
    help: "Group whose members may use docker.sock, with all permissions (default: its owner only)",
  },
  "docker-listen": {
    type: "string",
    value: "ADDR[:PORT]",
    help: "Serve Docker's Engine API on this address to clients with a user's certificate; the port defaults to 2376 (default: off)",
  },
  "json-listen": {
    type: "string",
    value: "ADDR[:PORT]",
    help: "Serve the JSON API on this address; the port defaults to 17070 (default: off)",
  },
  "json-origin": {
    type: "string",
    multiple: true,
    value: "ORIGIN",
    help: "Origin of pages that may use the JSON API in a browser, such as https://example.com (default: same origin only)",
  },
  "json-agent-listen": {
    type: "string",
    value: "ADDR[:PORT]",
    help: "Serve the JSON API to agents that present their node's certificate; the port defaults to 17071 (default: off)",
  },
  "json-redirect": { type: "string", value: "ADDR:PORT", help: "Redirect logins at the JSON API to this manager" },
  "ui-listen": {
    type: "string",
    value: "ADDR[:PORT]",
    help: "Serve the web interface to users on this address; the port defaults to 17072 (default: off)",
  },
  ...backupFlags,
  ...logging,
  ...logFileFlag,
  ...recorderFlag,
} as const;

/** Juju's port. */
const defaultJsonPort = 17_070;
const defaultJsonAgentPort = 17_071;
const defaultUiPort = 17_072;
/** Docker's port for TLS. */
const defaultDockerPort = 2_376;

interface JsonFlags {
  readonly "json-listen"?: string | undefined;
  readonly "json-origin"?: readonly string[] | undefined;
  readonly "json-agent-listen"?: string | undefined;
  readonly "json-redirect"?: string | undefined;
}

function jsonOf(values: JsonFlags): JsonOptions | null {
  const { "json-listen": listen, "json-agent-listen": agents, "json-redirect": redirect } = values;
  if (listen === undefined) {
    for (const flag of ["json-origin", "json-agent-listen", "json-redirect"] as const)
      if (values[flag] !== undefined) throw new UsageError(`--${flag} requires --json-listen`);
    return null;
  }
  return {
    listen: flagAddress("json-listen", listen, defaultJsonPort),
    agents: agents === undefined ? null : flagAddress("json-agent-listen", agents, defaultJsonAgentPort),
    origins: (values["json-origin"] ?? []).map((text) => {
      const origin = parseOrigin(text);
      if (origin !== null) return origin;
      throw new UsageError(
        `invalid argument ${JSON.stringify(text)} for "--json-origin" flag: expected SCHEME://HOST[:PORT], such as https://example.com`,
      );
    }),
    redirect: redirect === undefined ? null : flagAddress("json-redirect", redirect, defaultJsonPort),
  };
}

/** The number of a group of this machine; null: none is given. Throws UsageError. */
function groupOf(name: string | undefined): number | null {
  if (name === undefined) return null;
  if (/^\d{1,9}$/.test(name)) return Number(name);
  for (const line of readFileSync("/etc/group", "utf8").split("\n")) {
    const [known, , number] = line.split(":");
    if (known === name && number !== undefined) return Number(number);
  }
  throw new UsageError(
    `invalid argument ${JSON.stringify(name)} for "--docker-group" flag: /etc/group has no such group; a number is accepted, too`,
  );
}

/** From flags of `docker swarm init`; used only when the cluster is created. Throws UsageError. */
function networksOf(values: {
  readonly "default-addr-pool"?: readonly string[] | undefined;
  readonly "default-addr-pool-mask-length"?: string | undefined;
  readonly "data-path-port"?: string | undefined;
}): NetworkDefaults {
  const { addressPools, subnetLength, dataPathPort } = networkDefaults;
  const number = (text: string | undefined, otherwise: number): number =>
    text === undefined ? otherwise : /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  const chosen: NetworkDefaults = {
    addressPools: values["default-addr-pool"] ?? addressPools,
    subnetLength: number(values["default-addr-pool-mask-length"], subnetLength),
    dataPathPort: number(values["data-path-port"], dataPathPort),
  };
  const problem = networkDefaultsProblem(chosen);
  if (problem !== null) throw new UsageError(problem);
  return chosen;
}

/** An advertised address without a port gets the listening port. */
function advertised(advertise: string | undefined, listen: string | undefined): HostPort | null {
  if (advertise === undefined) return null;
  return flagAddress("advertise", advertise, flagAddress("listen", listen ?? defaultListen).port);
}

/** The address of `--metrics`. Throws UserError. */
export function metricsOf({ metrics }: { readonly metrics?: string | undefined }): HostPort | null {
  return metrics === undefined ? null : flagAddress("metrics", metrics);
}

/** Parses the flags of a process that serves nodes. Rejects with UsageError and UserError. */
export async function servingOf(
  values: BackupValues &
    JsonFlags & {
      readonly listen?: string | undefined;
      readonly advertise?: string | undefined;
      readonly metrics?: string | undefined;
      readonly "default-addr-pool"?: readonly string[] | undefined;
      readonly "default-addr-pool-mask-length"?: string | undefined;
      readonly "data-path-port"?: string | undefined;
      readonly "accept-log-loss"?: boolean | undefined;
      readonly "csi-plugin"?: readonly string[] | undefined;
      readonly "ui-listen"?: string | undefined;
      readonly "docker-group"?: string | undefined;
      readonly "docker-listen"?: string | undefined;
    },
): Promise<{
  readonly listen: HostPort;
  readonly advertise: HostPort | null;
  readonly metrics: HostPort | null;
  readonly networks: NetworkDefaults;
  readonly acceptsLogLoss: boolean;
  readonly csiPlugins: CsiSocketPaths;
  readonly json: JsonOptions | null;
  readonly ui: HostPort | null;
  readonly docker: DockerOptions;
  readonly backups: ScheduledBackups | null;
}> {
  return {
    listen: flagAddress("listen", values.listen ?? defaultListen),
    advertise: advertised(values.advertise, values.listen),
    metrics: metricsOf(values),
    networks: networksOf(values),
    acceptsLogLoss: values["accept-log-loss"] === true,
    csiPlugins: csiSocketPaths(values["csi-plugin"] ?? []),
    json: jsonOf(values),
    docker: {
      group: groupOf(values["docker-group"]),
      listen:
        values["docker-listen"] === undefined
          ? null
          : flagAddress("docker-listen", values["docker-listen"], defaultDockerPort),
    },
    backups: await scheduledBackupsOf(values),
    ui: values["ui-listen"] === undefined ? null : flagAddress("ui-listen", values["ui-listen"], defaultUiPort),
  };
}
