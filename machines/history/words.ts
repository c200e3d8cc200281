/** Display names of spec fields, and the formatting of their values. */
import { bytesText } from "../bytes-text.ts";
import type { Plain } from "./shown.ts";

/**
 * `plain`: a value, or an object or list with separate values. `line`: a list shown as one value. `assignments`: a list of
 * `NAME=VALUE`. `whole`: an object shown as one value.
 */
type Sort = "plain" | "line" | "assignments" | "whole";

interface Words {
  readonly field: string;
  readonly sort: Sort;
}

/** By path; other fields have the last part of their path as a name. */
const known: Readonly<Record<string, Words | string>> = {
  "annotations.name": "name",
  "task.container.image": "image",
  "task.container.env": { field: "env", sort: "assignments" },
  "task.container.command": { field: "command", sort: "line" },
  "task.container.args": { field: "args", sort: "line" },
  "task.container.dir": "workdir",
  "task.container.mounts": "mount",
  "task.container.secrets": "secret",
  "task.container.configs": "config",
  "task.container.hosts": "host",
  "task.container.groups": "group",
  "task.container.capabilityAdd": "cap-add",
  "task.container.capabilityDrop": "cap-drop",
  "task.container.stopGracePeriod": "stop grace period",
  "task.container.healthcheck.test": { field: "health check", sort: "line" },
  "task.container.healthcheck.startPeriod": "health start period",
  "task.container.healthcheck.retries": "health retries",
  "task.container.healthcheck.interval": "health interval",
  "task.container.healthcheck.timeout": "health timeout",
  "task.container.pidsLimit": "pids limit",
  "task.container.readOnly": "read-only",
  "task.container.init.value": "init",
  "task.container.ulimits": "ulimit",
  "task.container.dnsConfig.nameservers": "dns",
  "task.container.dnsConfig.search": "dns search",
  "task.container.dnsConfig.options": "dns option",
  "task.generic.kind": "driver",
  "task.generic.payload": "driver settings",
  "task.exec.command": "command",
  "task.exec.args": { field: "args", sort: "line" },
  "task.exec.env": { field: "env", sort: "assignments" },
  "task.exec.dir": "workdir",
  "task.exec.user": "user",
  "task.exec.stopSignal": "stop signal",
  "task.exec.stopGracePeriod": "stop grace period",
  "task.exec.secrets": "secret",
  "task.exec.configs": "config",
  "task.exec.mounts": "mount",
  "task.health.command": { field: "health check", sort: "line" },
  "task.health.http": { field: "health check", sort: "whole" },
  "task.health.tcp": { field: "health check", sort: "whole" },
  "task.health.startPeriod": "health start period",
  "task.health.startInterval": "health start interval",
  "task.health.retries": "health retries",
  "task.health.interval": "health interval",
  "task.health.timeout": "health timeout",
  "task.resources.limits.nanoCpus": "cpu limit",
  "task.resources.limits.memoryBytes": "memory limit",
  "task.resources.reservations.nanoCpus": "cpu reservation",
  "task.resources.reservations.memoryBytes": "memory reservation",
  "task.resources.reservations.generic": "generic resource",
  "task.resources.swapBytes.value": "swap",
  "task.resources.memorySwappiness.value": "memory swappiness",
  "capacityRange.requiredBytes": "required capacity",
  "capacityRange.limitBytes": "capacity limit",
  "accessMode.scope": "scope",
  "accessMode.sharing": "sharing",
  "task.restart.condition": "restart condition",
  "task.restart.delay": "restart delay",
  "task.restart.maxAttempts": "restart attempts",
  "task.restart.window": "restart window",
  "task.placement.constraints": "constraint",
  "task.placement.preferences": "placement preference",
  "task.placement.maxReplicas": "replicas a node",
  "task.placement.platforms": "platform",
  "task.networks": "network",
  "task.forceUpdate": "force update",
  "task.logDriver": { field: "log driver", sort: "whole" },
  "task.resourceReferences": "resource reference",
  "replicated.replicas": "replicas",
  "replicatedJob.maxConcurrent": "concurrent tasks",
  "replicatedJob.totalCompletions": "completions",
  "endpoint.mode": "endpoint mode",
  "endpoint.ports": "port",
  networks: "network",
  desiredRole: "role",
  observedRole: "observed role",
  desiredState: "desired state",
  nodeId: "node",
  exitCode: "exit code",
  engineVersion: "engine version",
  caCertificate: "root certificate",
  rootRotation: "root rotation",
  "workerToken.token": "worker join token",
  "managerToken.token": "manager join token",
  unlockKeys: "unlock key",
  networkBootstrapKeys: "network keys",
  refusedCertificates: "refused certificate",
  published: { field: "on node", sort: "assignments" },
  volumeId: "volume id",
  "encryptionConfig.autoLockManagers": "autolock",
  "caConfig.nodeCertExpiry": "certificate expiry",
  "caConfig.forceRotate": "forced CA rotations",
  "caConfig.externalCas": "external CA",
  "dispatcher.heartbeatPeriod": "heartbeat period",
  "orchestration.taskHistoryRetentionLimit": "task history limit",
  "driverConfig.name": "driver",
  "ipam.configs": "subnet",
};

/** Path prefixes that carry no information. */
const prefixes = ["task.container.", "task.", "annotations.", "driver.", "encryptionConfig.", "caConfig."];

export function wordsFor(path: readonly string[]): Words {
  const whole = path.join(".");
  const found = Object.hasOwn(known, whole) ? known[whole] : undefined;
  if (found !== undefined) return typeof found === "string" ? { field: found, sort: "plain" } : found;
  const labelsAt = path.indexOf("labels");
  // `label com.example.team`: label keys may contain dots.
  if (labelsAt >= 0 && labelsAt < path.length - 1) {
    const owner = path.includes("container") ? "container label" : "label";
    return { field: `${owner} ${path.slice(labelsAt + 1).join(".")}`, sort: "plain" };
  }
  const prefix = prefixes.find((each) => whole.startsWith(each) && whole.length > each.length) ?? "";
  return { field: spaced(whole.slice(prefix.length)), sort: "plain" };
}

/** `maxFailureRatio` → `max failure ratio`. */
function spaced(path: string): string {
  return path
    .replaceAll(".", " ")
    .replace(/([a-z0-9])([A-Z])/g, (_, a: string, b: string) => `${a} ${b.toLowerCase()}`)
    .trim();
}

type Record_ = { readonly [key: string]: Plain };

/** The format of list elements, and of objects shown as one value. */
const texts: Readonly<Record<string, (value: Record_) => string>> = {
  "task.container.mounts": mount,
  "task.exec.mounts": mount,
  "task.container.secrets": ({ secretName, secretId, file }) => reference(secretName, secretId, file),
  "task.exec.secrets": ({ secretName, secretId, file }) => reference(secretName, secretId, file),
  "task.container.configs": ({ configName, configId, file }) => reference(configName, configId, file),
  "task.exec.configs": ({ configName, configId, file }) => reference(configName, configId, file),
  "task.networks": ({ target, aliases }) =>
    `${text(target)}${Array.isArray(aliases) ? ` as ${aliases.join(", ")}` : ""}`,
  networks: ({ target }) => text(target),
  "endpoint.ports": ({ publishedPort, targetPort, protocol, publishMode }) =>
    `${publishedPort === undefined ? "" : `${text(publishedPort)}:`}${text(targetPort)}/${text(protocol, "tcp").toLowerCase()}${publishMode === "HOST" ? " on the host" : ""}`,
  "task.placement.preferences": ({ spread }) => `spread=${text((spread as Record_ | undefined)?.["spreadDescriptor"])}`,
  "task.container.ulimits": ({ hard, name, soft }) => `${text(name)}=${text(soft, "0")}:${text(hard, "0")}`,
  "task.placement.platforms": ({ architecture, os }) =>
    [os, architecture]
      .filter((each) => each !== undefined)
      .map(String)
      .join("/"),
  "task.resourceReferences": ({ resourceId, resourceType }) =>
    `${text(resourceType, "task").toLowerCase()} ${text(resourceId)}`,
  "task.logDriver": ({ name }) => text(name, "none"),
  "caConfig.externalCas": ({ url }) => text(url),
  "ipam.configs": ({ subnet, gateway }) => `${text(subnet)}${gateway === undefined ? "" : ` via ${text(gateway)}`}`,
};

function mount({ source, target, readonly, type }: Record_): string {
  return `${text(type, "bind").toLowerCase()} ${text(source)}:${text(target)}${readonly === true ? ":ro" : ""}`;
}

function reference(name: Plain, id: Plain, file: Plain): string {
  const target = text((file as Record_ | undefined)?.["name"]);
  const called = text(name, text(id));
  return target === "" || target === called ? called : `${called} as ${target}`;
}

function text(value: Plain, otherwise = ""): string {
  return value === undefined || value === null ? otherwise : String(value as string | number | boolean);
}

/** The formatted value at that path; for a list, of one element. */
export function textOf(path: readonly string[], value: Plain): string {
  const whole = path.join(".");
  const name = path.at(-1) ?? "";
  if (value === null || value === undefined) return "";
  if (typeof value === "object" && !Array.isArray(value)) {
    const record = value as Record_;
    const own = Object.hasOwn(texts, whole) ? texts[whole] : undefined;
    if (own !== undefined) return own(record);
    if ("seconds" in record || "nanos" in record) return durationWords(record);
    return JSON.stringify(record).replaceAll('"', "");
  }
  if (Array.isArray(value)) return value.map((each) => textOf(path, each as Plain)).join(" ");
  if (name === "nanoCpus" || name === "cpus") return `${Number(value) / 1e9}`;
  if (name === "memoryBytes" || name === "memory" || whole === "task.resources.swapBytes.value")
    return bytesText(Number(value));
  if (typeof value === "number" && name.endsWith("Bytes")) return bytesText(value);
  if (typeof value === "number") return String(Number.isInteger(value) ? value : Number(value.toPrecision(7)));
  // Enum values in specs are upper-case names.
  return typeof value === "string" && isEnumField(name) ? value.toLowerCase().replaceAll("_", " ") : String(value);
}

function isEnumField(name: string): boolean {
  return /^(?:availability|desiredRole|condition|failureAction|order|mode|isolation|scope|sharing|role)$/.test(name);
}

/** In seconds. */
const largeUnits = [
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
] as const;

function durationWords(record: Record_): string {
  const seconds = Number(record["seconds"] ?? 0) + Number(record["nanos"] ?? 0) / 1e9;
  if (seconds !== 0 && Math.abs(seconds) < 1) return `${Number((seconds * 1_000).toPrecision(6))}ms`;
  for (const [unit, size] of largeUnits) if (seconds !== 0 && seconds % size === 0) return `${seconds / size}${unit}`;
  return `${seconds}s`;
}
