/** Converts a Compose service to a container spec, field by field like Docker's client. */
import { parseAddress } from "../../lib/ip-address.ts";
import {
  BoolValue,
  ConfigReference,
  ContainerSpec,
  ContainerSpec_DNSConfig,
  ContainerSpec_Isolation,
  ContainerSpec_Ulimit,
  Duration,
  HealthConfig,
  Privileges,
  Privileges_CredentialSpec,
  RuntimeTarget,
} from "../../proto/gen/messages.ts";
import { newCapabilities } from "../service/capabilities.ts";
import { pidsLimitOf } from "./convert-deploy.ts";
import { clusterName, filesOf, type Surroundings } from "./convert-files.ts";
import { mountsOf } from "./convert-mounts.ts";
import { withStackLabel } from "./names.ts";
import type { View } from "./view.ts";

const isolations: Readonly<Record<string, ContainerSpec_Isolation>> = {
  "": ContainerSpec_Isolation.ISOLATION_DEFAULT,
  default: ContainerSpec_Isolation.ISOLATION_DEFAULT,
  process: ContainerSpec_Isolation.ISOLATION_PROCESS,
  hyperv: ContainerSpec_Isolation.ISOLATION_HYPERV,
};

function environment(service: View): readonly string[] {
  const entries = [...service.variables("environment")].map(([name, value]) =>
    value === null ? name : `${name}=${value}`,
  );
  // Sorted, so that the same file yields the same spec.
  return entries.toSorted();
}

function healthcheck(service: View): HealthConfig | null {
  if (!service.has("healthcheck")) return null;
  const health = service.child("healthcheck");
  const test = health.texts("test");
  const isDisabled = health.boolean("disable") === true;
  if (isDisabled && test.length > 0) throw health.mistake("disable", "cannot be combined with 'test'");
  const [kind = ""] = test;
  if (test.length > 0 && !["NONE", "CMD", "CMD-SHELL"].includes(kind)) {
    throw health.mistake("test", `must be a string, or a list that begins with NONE, CMD or CMD-SHELL, not '${kind}'`);
  }
  const zero = Duration.create({});
  if (isDisabled) return HealthConfig.create({ test: ["NONE"], interval: zero, timeout: zero, startPeriod: zero });
  return HealthConfig.create({
    test,
    interval: health.duration("interval") ?? zero,
    timeout: health.duration("timeout") ?? zero,
    startPeriod: health.duration("start_period") ?? zero,
    startInterval: health.duration("start_interval"),
    retries: health.whole("retries") ?? 0,
  });
}

/** Converts `db:10.0.0.1` to a line of /etc/hosts. */
function hosts(service: View): readonly string[] {
  return service.texts("extra_hosts").map((text) => {
    const at = text.indexOf(":");
    const [name, address] = [text.slice(0, at), text.slice(at + 1)];
    if (parseAddress(address) === null && address !== "host-gateway") {
      throw service.mistake("extra_hosts", `has an invalid address for ${name}: '${address}'`);
    }
    return `${address} ${name}`;
  });
}

/** Null when absent. Throws UserError. */
export function dns(service: View): ContainerSpec_DNSConfig | null {
  const [nameservers, search, options] = ["dns", "dns_search", "dns_opt"].map((key) => service.texts(key));
  for (const server of nameservers ?? []) {
    if (parseAddress(server) === null) throw service.mistake("dns", `has an invalid address: '${server}'`);
  }
  if (!service.has("dns") && !service.has("dns_search") && !service.has("dns_opt")) return null;
  return ContainerSpec_DNSConfig.create({
    nameservers: nameservers ?? [],
    search: search ?? [],
    options: options ?? [],
  });
}

function ulimits(service: View): readonly ContainerSpec_Ulimit[] {
  const limits = [...service.children("ulimits")].map(([name, view]) => {
    const [soft, hard] = [view.whole("soft") ?? 0, view.whole("hard") ?? 0];
    if (hard !== -1 && (soft > hard || soft === -1)) throw view.mistake("soft", "exceeds the hard limit");
    return ContainerSpec_Ulimit.create({ name, soft, hard });
  });
  return limits.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function credential(
  service: View,
  { project, stack, lookups }: Surroundings,
): { readonly spec: Privileges_CredentialSpec | null; readonly reference: ConfigReference | null } {
  if (!service.has("credential_spec")) return { spec: null, reference: null };
  const given = service.child("credential_spec");
  const sources = ["config", "file", "registry"].filter((key) => given.text(key) !== "");
  if (sources.length !== 1) throw service.mistake("credential_spec", "must have one of config, file, registry");
  if (sources[0] === "file")
    return { spec: Privileges_CredentialSpec.create({ file: given.text("file") }), reference: null };
  if (sources[0] === "registry") {
    return { spec: Privileges_CredentialSpec.create({ registry: given.text("registry") }), reference: null };
  }
  const key = given.text("config");
  const name = clusterName(project, "configs", key, stack);
  if (name === null) throw given.mistake("config", `refers to '${key}', which 'configs' does not define`);
  const configId = lookups.config(name);
  return {
    spec: Privileges_CredentialSpec.create({ config: configId }),
    reference: ConfigReference.create({ configId, configName: name, runtime: RuntimeTarget.create({}) }),
  };
}

/** Throws UserError for invalid settings, and for secrets and configs that the cluster lacks. */
export function containerOf(service: View, around: Surroundings): ContainerSpec {
  const { stack, project } = around;
  if (!service.has("image")) {
    throw service.mistake("", "requires 'image': a cluster does not build images");
  }
  const init = service.boolean("init");
  const { spec: credentialSpec, reference } = credential(service, around);
  const { secrets, configs } = filesOf(service, around);
  const isolation = isolations[service.text("isolation").toLowerCase()];
  if (isolation === undefined) throw service.mistake("isolation", "must be one of default, process, hyperv");
  return ContainerSpec.create({
    image: service.text("image"),
    command: service.texts("entrypoint"),
    args: service.texts("command"),
    hostname: service.text("hostname"),
    hosts: hosts(service),
    dnsConfig: dns(service),
    healthcheck: healthcheck(service),
    env: environment(service),
    labels: withStackLabel(stack, service.pairs("labels")),
    dir: service.text("working_dir"),
    user: service.text("user"),
    groups: service.texts("group_add"),
    mounts: mountsOf(service, stack, project.children("volumes")),
    stopGracePeriod: service.duration("stop_grace_period"),
    stopSignal: service.text("stop_signal"),
    tty: service.boolean("tty") ?? false,
    openStdin: service.boolean("stdin_open") ?? false,
    readOnly: service.boolean("read_only") ?? false,
    secrets,
    configs: reference === null ? configs : [...configs, reference],
    privileges: Privileges.create({ credentialSpec }),
    isolation,
    init: init === null ? null : BoolValue.create({ value: init }),
    sysctls: service.pairs("sysctls"),
    ulimits: ulimits(service),
    pidsLimit: pidsLimitOf(service),
    oomScoreAdj: service.whole("oom_score_adj") ?? 0,
    ...newCapabilities(service.texts("cap_add"), service.texts("cap_drop")),
  });
}
