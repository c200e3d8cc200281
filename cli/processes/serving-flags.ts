/** The flags that several processes have, and what they mean. */
import { join } from "node:path";
import {
  networkDefaults,
  networkDefaultsProblem,
  type NetworkDefaults,
} from "../../machines/allocation/network-defaults.ts";
import { parseOrigin } from "../../edges/juju/origin.ts";
import { createTelemetry, type ProcessTelemetry } from "../../runtime/telemetry/telemetry.ts";
import { UsageError } from "../command.ts";
import { parseHostPort, type HostPort } from "./addresses.ts";
import { csiSocketPaths, type CsiSocketPaths } from "./csi.ts";
import { cannotWrite } from "./data-dir.ts";
import type { JsonOptions } from "./json-api.ts";

/** SwarmKit's port. */
export const defaultPort = 2377;
const defaultListen = `0.0.0.0:${defaultPort}`;

export const logFile = "muster.log";
export const logging = {
  "log-level": { type: "string", value: "LEVEL", help: "trace, debug, info, warn, error or fatal (info)" },
} as const;
export const metricsFlag = {
  type: "string",
  value: "ADDR:PORT",
  help: "serves /metrics and /healthz there (nowhere)",
} as const;
export const csiFlag = {
  type: "string",
  multiple: true,
  value: "NAME=unix:///PATH",
  help: "a CSI plugin by the socket on which it answers",
} as const;
export const serving = {
  "data-dir": {
    type: "string",
    value: "DIR",
    help: "where it keeps its state; up and start have a place of their own",
  },
  listen: { type: "string", value: "ADDR:PORT", help: "where nodes reach it (0.0.0.0:2377)" },
  advertise: { type: "string", value: "ADDR[:PORT]", help: "the address that nodes are told (found out)" },
  metrics: metricsFlag,
  "default-addr-pool": {
    type: "string",
    multiple: true,
    value: "CIDR",
    help: "where subnets of networks are taken from, when the cluster is founded (10.0.0.0/8)",
  },
  "default-addr-pool-mask-length": { type: "string", value: "BITS", help: "how large these subnets are (24)" },
  "data-path-port": { type: "string", value: "PORT", help: "UDP port of the engines' VXLAN traffic (4789)" },
  "accept-log-loss": {
    type: "boolean",
    help: "start although NATS has lost records that this manager has seen; what they said is gone",
  },
  "csi-plugin": csiFlag,
  "json-listen": {
    type: "string",
    value: "ADDR[:PORT]",
    help: "serves the JSON API there, by default on port 17070 (nowhere)",
  },
  "json-origin": {
    type: "string",
    multiple: true,
    value: "ORIGIN",
    help: "origin of pages that may open the JSON API in a browser, such as https://example.com (its own alone)",
  },
  "json-agent-listen": {
    type: "string",
    value: "ADDR[:PORT]",
    help: "serves the JSON API to agents that show their node's certificate, by default on port 17071 (nowhere)",
  },
  "json-redirect": { type: "string", value: "ADDR:PORT", help: "sends logins at the JSON API on to that manager" },
  ...logging,
} as const;

/** Juju's port. */
const defaultJsonPort = 17_070;
const defaultJsonAgentPort = 17_071;

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
      if (values[flag] !== undefined) throw new UsageError(`--${flag} needs --json-listen`);
    return null;
  }
  return {
    listen: parseHostPort(listen, defaultJsonPort),
    agents: agents === undefined ? null : parseHostPort(agents, defaultJsonAgentPort),
    origins: (values["json-origin"] ?? []).map((text) => {
      const origin = parseOrigin(text);
      if (origin !== null) return origin;
      throw new UsageError(
        `invalid --json-origin ${JSON.stringify(text)}: expected SCHEME://HOST[:PORT], such as https://example.com`,
      );
    }),
    redirect: redirect === undefined ? null : parseHostPort(redirect, defaultJsonPort),
  };
}

/** By the flags of `docker swarm init`. They count when a cluster is founded; throws UsageError. */
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

/** An advertised address without a port has the port that is listened on. */
function advertised(advertise: string | undefined, listen: string | undefined): HostPort | null {
  if (advertise === undefined) return null;
  return parseHostPort(advertise, parseHostPort(listen ?? defaultListen, defaultPort).port);
}

export function hostPortOf(text: string | undefined): HostPort | null {
  return text === undefined ? null : parseHostPort(text, defaultPort);
}

/** What the flags of whoever serves nodes say. Throws UsageError and UserError. */
export function servingOf(
  values: JsonFlags & {
    readonly listen?: string | undefined;
    readonly advertise?: string | undefined;
    readonly metrics?: string | undefined;
    readonly "default-addr-pool"?: readonly string[] | undefined;
    readonly "default-addr-pool-mask-length"?: string | undefined;
    readonly "data-path-port"?: string | undefined;
    readonly "accept-log-loss"?: boolean | undefined;
    readonly "csi-plugin"?: readonly string[] | undefined;
  },
): {
  readonly listen: HostPort;
  readonly advertise: HostPort | null;
  readonly metrics: HostPort | null;
  readonly networks: NetworkDefaults;
  readonly acceptsLogLoss: boolean;
  readonly csiPlugins: CsiSocketPaths;
  readonly json: JsonOptions | null;
} {
  return {
    listen: parseHostPort(values.listen ?? defaultListen, defaultPort),
    advertise: advertised(values.advertise, values.listen),
    metrics: hostPortOf(values.metrics),
    networks: networksOf(values),
    acceptsLogLoss: values["accept-log-loss"] === true,
    csiPlugins: csiSocketPaths(values["csi-plugin"] ?? []),
    json: jsonOf(values),
  };
}

/** Logs go to standard error for a service, and to a file beside its data for a person at a terminal. Throws UserError. */
export async function telemetryFor(
  service: string,
  level: string | undefined,
  logDir: string | null = null,
): Promise<ProcessTelemetry> {
  try {
    return await createTelemetry({
      service,
      level: level ?? process.env["MUSTER_LOG_LEVEL"] ?? "info",
      otlpEndpoint: process.env["OTEL_EXPORTER_OTLP_ENDPOINT"],
      ...(logDir === null ? {} : { logFile: join(logDir, logFile) }),
    });
  } catch (error) {
    if (logDir !== null && (error as NodeJS.ErrnoException).syscall !== undefined) throw cannotWrite(logDir, error);
    throw error;
  }
}
