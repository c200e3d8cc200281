/** Services whose tasks run on a driver plugin: conversion between flags and payload. */
import { driverSpecType } from "../../machines/driver/spec.ts";
import {
  Any,
  DriverDevice,
  DriverSpec,
  GenericRuntimeSpec,
  ResourceReference,
  ResourceType,
  type TaskSpec,
} from "../../proto/gen/messages.ts";
import { UsageError } from "../../lib/user-error.ts";
import { driverConfigFrom } from "../driver-config.ts";
import { dnsAfter, newDns, processDns } from "./dns.ts";
import { environmentAfter, newEnvironment } from "./environment.ts";
import { healthCheckAfter } from "./health.ts";
import type { CreateValues, SettingValues, UpdateValues } from "./flags.ts";
import { mountsAfter, parseMount } from "./mount-flag.ts";
import { configReferences, secretReferences, type Lookups } from "./references.ts";
import { parseDuration } from "../values.ts";

/** Replaces the flag's value, in any form, by JSON text. Throws UserError. */
export async function withDriverConfig<Values extends { readonly "driver-config"?: string | undefined }>(
  values: Values,
): Promise<Values> {
  const text = values["driver-config"];
  if (text === undefined) return values;
  return { ...values, "driver-config": JSON.stringify((await driverConfigFrom(text, "--driver-config")) ?? {}) };
}

/** `flags`: with the configuration as JSON. Throws UsageError and UserError. */
export function newDriverTask(kind: string, flags: CreateValues, words: readonly string[], lookups: Lookups) {
  if (words.length > 0)
    throw new UsageError(`unexpected argument "${words[0]}": driver ${kind} is configured with --driver-config`);
  refuseWorkdir(flags);
  // A name without a value sets nothing.
  const env = newEnvironment(flags).filter((entry) => entry.includes("="));
  const secrets = secretReferences(flags.secret ?? [], lookups);
  const configs = configReferences(flags.config ?? [], lookups);
  const mounts = (flags.mount ?? []).map((text) => parseMount(text));
  const devices = (flags.device ?? []).map((text) => parseDevice(text, "device"));
  const config = flags["driver-config"] ?? "{}";
  return driverTask(
    kind,
    DriverSpec.create({ config, env, secrets, configs, mounts, devices, dns: processDns(newDns(flags)) }),
  );
}

/** Applies the flags of `service update`. */
export function driverTaskAfter(kind: string, before: DriverSpec, flags: UpdateValues, lookups: Lookups, of: TaskSpec) {
  refuseWorkdir(flags);
  if (flags.args !== undefined) throw new UsageError(`--args is not supported for driver ${kind}`);
  const spec = DriverSpec.patch(before, {
    config: flags["driver-config"] ?? before.config,
    env: environmentAfter(before.env, flags).filter((entry) => entry.includes("=")),
    secrets: [
      ...before.secrets.filter(({ secretName }) => !(flags["secret-rm"] ?? []).includes(secretName)),
      ...secretReferences(flags["secret-add"] ?? [], lookups, "secret-add"),
    ],
    configs: [
      ...before.configs.filter(({ configName }) => !(flags["config-rm"] ?? []).includes(configName)),
      ...configReferences(flags["config-add"] ?? [], lookups, "config-add"),
    ],
    mounts: mountsAfter(before.mounts, flags["mount-add"] ?? [], flags["mount-rm"] ?? []),
    devices: devicesAfter(before.devices, flags["device-add"] ?? [], flags["device-rm"] ?? []),
    dns: processDns(dnsAfter(before.dns, flags)),
  });
  return driverTask(kind, spec, of);
}

/** Parses `HOST[:TASK[:rwm]]`, like Docker's `run`. */
function parseDevice(text: string, flag: string): DriverDevice {
  const [, hostPath = "", taskPath = "", permissions = ""] =
    /^(\/[^:]+)(?::(\/[^:]*))?(?::([rwm]+))?$/.exec(text) ?? [];
  if (hostPath === "")
    throw new UsageError(
      `invalid argument "${text}" for "--${flag}" flag: expected HOST[:TASK[:rwm]] with absolute paths`,
    );
  return DriverDevice.create({ hostPath, taskPath, permissions });
}

function devicesAfter(
  before: readonly DriverDevice[],
  added: readonly string[],
  removed: readonly string[],
): readonly DriverDevice[] {
  const devices = added.map((text) => parseDevice(text, "device-add"));
  const gone = new Set([...removed, ...devices.map(({ hostPath }) => hostPath)]);
  return [...before.filter(({ hostPath }) => !gone.has(hostPath)), ...devices];
}

/** Settings common to all services. */
export function driverSettings(before: DriverSpec, flags: SettingValues): DriverSpec {
  const grace = flags["stop-grace-period"];
  return DriverSpec.patch(before, {
    user: flags.user ?? before.user,
    stopSignal: flags["stop-signal"] ?? before.stopSignal,
    stopGracePeriod: grace === undefined ? before.stopGracePeriod : parseDuration(grace, "stop-grace-period"),
    health: healthCheckAfter(before.health, flags),
  });
}

export function driverPayload(kind: string, spec: DriverSpec): GenericRuntimeSpec {
  return GenericRuntimeSpec.create({
    kind,
    payload: Any.create({ type_url: `type.googleapis.com/${driverSpecType}`, value: DriverSpec.encode(spec) }),
  });
}

/** The payload, and the references that the task's nodes need. */
function driverTask(kind: string, spec: DriverSpec, before: TaskSpec | null = null): Partial<TaskSpec> {
  const others = (before?.resourceReferences ?? []).filter(({ resourceType }) => resourceType === ResourceType.TASK);
  const reference = (resourceType: ResourceType) => (resourceId: string) =>
    ResourceReference.create({ resourceId, resourceType });
  return {
    generic: driverPayload(kind, spec),
    resourceReferences: [
      ...others,
      ...[...new Set(spec.secrets.map(({ secretId }) => secretId))].map(reference(ResourceType.SECRET)),
      ...[...new Set(spec.configs.map(({ configId }) => configId))].map(reference(ResourceType.CONFIG)),
    ],
  };
}

function refuseWorkdir(flags: SettingValues): void {
  if (flags.workdir !== undefined)
    throw new UsageError(
      "--workdir is supported for containers and processes only: set it in the driver's configuration",
    );
}
