/**
 * Flags of cluster settings with Docker's names: those shared by `swarm update` and `swarm ca`, and those of `swarm update`
 * only. Absent flags change nothing.
 */
import { readFileSync } from "node:fs";
import type { Duration } from "../../proto/gen/messages.ts";
import {
  CAConfig,
  ClusterSpec,
  DispatcherConfig,
  ExternalCA,
  ExternalCA_CAProtocol,
  OrchestrationConfig,
  RaftConfig,
} from "../../proto/gen/messages.ts";
import { UsageError } from "../../lib/user-error.ts";
import { csvFields, parseCount, parseDuration } from "../values.ts";

export const caSettingOptions = {
  "cert-expiry": {
    type: "string",
    value: "DURATION",
    help: "Validity period of node certificates (minimum 1h; default 2160h)",
  },
  "external-ca": {
    type: "string",
    multiple: true,
    value: "protocol=cfssl,url=URL",
    help: "External CA that signs certificates; replaces all external CAs set before",
  },
} as const;

export const clusterSettingOptions = {
  ...caSettingOptions,
  "dispatcher-heartbeat": {
    type: "string",
    value: "DURATION",
    help: "Dispatcher heartbeat period (default 5s)",
  },
  "task-history-limit": {
    type: "string",
    value: "NUMBER",
    help: "Number of finished tasks to keep per slot (default 5)",
  },
  "snapshot-interval": { type: "string", value: "NUMBER", help: "Accepted for compatibility; NATS stores the log" },
  "max-snapshots": { type: "string", value: "NUMBER", help: "Accepted for compatibility; NATS stores the log" },
} as const;

interface CaSettings {
  readonly "cert-expiry"?: string | undefined;
  readonly "external-ca"?: readonly string[] | undefined;
}

export interface ClusterSettings extends CaSettings {
  readonly "dispatcher-heartbeat"?: string | undefined;
  readonly "task-history-limit"?: string | undefined;
  readonly "snapshot-interval"?: string | undefined;
  readonly "max-snapshots"?: string | undefined;
}

/** Reads a PEM file like Docker's client. Throws UsageError. */
export function readPem(path: string, complaint: string): Uint8Array {
  let contents: string;
  try {
    contents = readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`cannot read ${path}: ${(error as Error).message}`);
  }
  if (!/-----BEGIN [^-]+-----[\s\S]*-----END [^-]+-----/.test(contents)) throw new UsageError(complaint);
  return new TextEncoder().encode(contents);
}

/** Parses `protocol=cfssl,url=https://…[,cacert=FILE][,KEY=VALUE …]`. Throws UsageError with Docker's messages. */
export function parseExternalCa(text: string): ExternalCA {
  let hasProtocol = false;
  let url: string | null = null;
  let caCert: Uint8Array = new Uint8Array();
  const options: Record<string, string> = {};
  for (const field of csvFields(text, "external-ca")) {
    const at = field.indexOf("=");
    if (at < 0) throw new UsageError(`invalid field '${field}' must be a key=value pair`);
    const [key, value] = [field.slice(0, at), field.slice(at + 1)];
    switch (key) {
      case "protocol":
        if (value.toLowerCase() !== "cfssl") throw new UsageError(`unrecognized external CA protocol ${value}`);
        hasProtocol = true;
        break;
      case "url":
        url = value;
        break;
      case "cacert":
        caCert = readPem(value, "CA cert for external CA must be in PEM format");
        break;
      default:
        options[key] = value;
    }
  }
  if (!hasProtocol) throw new UsageError("the external-ca option needs a protocol= parameter");
  if (url === null) throw new UsageError("the external-ca option needs a url= parameter");
  return ExternalCA.create({ protocol: ExternalCA_CAProtocol.CFSSL, url, options, caCert });
}

/** `rootPem`: the new root, which the given external CAs sign for; null without one. */
export function withCaSettings(spec: ClusterSpec, values: CaSettings, rootPem: Uint8Array | null): ClusterSpec {
  const { "cert-expiry": expiry, "external-ca": externals } = values;
  if (expiry === undefined && externals === undefined) return spec;
  return ClusterSpec.patch(spec, {
    caConfig: CAConfig.patch(spec.caConfig ?? CAConfig.create({}), {
      ...(expiry === undefined ? {} : { nodeCertExpiry: parseDuration(expiry, "cert-expiry") }),
      ...(externals === undefined
        ? {}
        : {
            externalCas: externals.map((text) => {
              const parsed = parseExternalCa(text);
              return rootPem === null ? parsed : ExternalCA.patch(parsed, { caCert: rootPem });
            }),
          }),
    }),
  });
}

export function withSettings(spec: ClusterSpec, values: ClusterSettings): ClusterSpec {
  let next = withCaSettings(spec, values, null);
  const heartbeat = values["dispatcher-heartbeat"];
  if (heartbeat !== undefined) {
    const heartbeatPeriod: Duration = parseDuration(heartbeat, "dispatcher-heartbeat");
    const dispatcher = DispatcherConfig.patch(next.dispatcher ?? DispatcherConfig.create({}), { heartbeatPeriod });
    next = ClusterSpec.patch(next, { dispatcher });
  }
  const history = values["task-history-limit"];
  if (history !== undefined) {
    // In Docker, a negative number keeps all.
    const taskHistoryRetentionLimit = /^-\d+$/.test(history) ? -1 : parseCount(history, "task-history-limit");
    const orchestration = OrchestrationConfig.patch(next.orchestration ?? OrchestrationConfig.create({}), {
      taskHistoryRetentionLimit,
    });
    next = ClusterSpec.patch(next, { orchestration });
  }
  const [interval, snapshots] = [values["snapshot-interval"], values["max-snapshots"]];
  if (interval !== undefined || snapshots !== undefined) {
    const raft = RaftConfig.patch(next.raft ?? RaftConfig.create({}), {
      ...(interval === undefined ? {} : { snapshotInterval: parseCount(interval, "snapshot-interval") }),
      ...(snapshots === undefined ? {} : { keepOldSnapshots: parseCount(snapshots, "max-snapshots") }),
    });
    next = ClusterSpec.patch(next, { raft });
  }
  return next;
}
