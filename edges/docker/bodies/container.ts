/** `ContainerSpec` of a service. */
import {
  BoolValue,
  ConfigReference,
  ContainerSpec,
  ContainerSpec_DNSConfig,
  ContainerSpec_Isolation,
  ContainerSpec_Ulimit,
  FileTarget,
  HealthConfig,
  Mount,
  Mount_BindOptions,
  Mount_BindOptions_Propagation,
  Mount_Consistency,
  Mount_TmpfsOptions,
  Mount_Type,
  Mount_VolumeOptions,
  Privileges,
  Privileges_AppArmorOpts,
  Privileges_AppArmorOpts_AppArmorMode,
  Privileges_CredentialSpec,
  Privileges_SELinuxContext,
  Privileges_SeccompOpts,
  Privileges_SeccompOpts_SeccompMode,
  RuntimeTarget,
  SecretReference,
  Duration,
} from "../../../proto/gen/messages.ts";
import { badRequest } from "../failure.ts";
import {
  bytes,
  duration,
  flag,
  integer,
  list,
  map,
  maybeFlag,
  object,
  shape,
  text,
  texts,
  word,
  type Json,
} from "../shape.ts";
import { mountDriver } from "./common.ts";

/** The value of an enum by its name in any case; `otherwise` for an empty word. */
export function enumOf<Value extends number>(
  values: Readonly<Record<string, Value>>,
  otherwise: Value,
  wrong: (given: string) => string,
): (given: string) => Value {
  return (given) => {
    if (given === "") return otherwise;
    const name = given.toUpperCase().replaceAll("-", "_");
    if (!Object.hasOwn(values, name)) throw badRequest(wrong(given));
    return values[name] as Value;
  };
}

const bindOptions = shape("mount.BindOptions", Mount_BindOptions, {
  Propagation: word(
    "propagation",
    "mount.Propagation",
    enumOf(
      Mount_BindOptions_Propagation,
      Mount_BindOptions_Propagation.RPRIVATE,
      (given) => `invalid MountPropagation: ${JSON.stringify(given)}`,
    ),
  ),
  NonRecursive: flag("nonrecursive"),
  CreateMountpoint: flag("createmountpoint"),
  ReadOnlyNonRecursive: flag("readonlynonrecursive"),
  ReadOnlyForceRecursive: flag("readonlyforcerecursive"),
});

const volumeOptions = shape("mount.VolumeOptions", Mount_VolumeOptions, {
  NoCopy: flag("nocopy"),
  Labels: map("labels"),
  DriverConfig: object("driverConfig", mountDriver),
  Subpath: text("subpath"),
});

const tmpfsOptions = shape("mount.TmpfsOptions", Mount_TmpfsOptions, {
  SizeBytes: integer("sizeBytes", "int64"),
  Mode: integer("mode", "fs.FileMode"),
});

const mount = shape(
  "mount.Mount",
  Mount,
  {
    Type: word(
      "type",
      "mount.Type",
      enumOf(Mount_Type, Mount_Type.BIND, (given) => `invalid MountType: ${JSON.stringify(given)}`),
    ),
    Source: text("source"),
    Target: text("target"),
    ReadOnly: flag("readonly"),
    Consistency: word("consistency", "mount.Consistency", (given) =>
      Object.hasOwn(Mount_Consistency, given.toUpperCase())
        ? Mount_Consistency[given.toUpperCase() as keyof typeof Mount_Consistency]
        : Mount_Consistency.DEFAULT,
    ),
    BindOptions: object("bindOptions", bindOptions),
    VolumeOptions: object("volumeOptions", volumeOptions),
    TmpfsOptions: object("tmpfsOptions", tmpfsOptions),
  },
  (read, { BindOptions: given }) => {
    const says = Object.values((given as Json | null | undefined) ?? {}).some(Boolean);
    // A stock engine drops bind options that say nothing.
    return says || read.bindOptions === null ? read : Mount.patch(read, { bindOptions: null });
  },
);

function file(goType: string) {
  return shape(goType, FileTarget, {
    Name: text("name"),
    UID: text("uid"),
    GID: text("gid"),
    Mode: integer("mode", "fs.FileMode"),
  });
}

const secret = shape("swarm.SecretReference", SecretReference, {
  File: object("file", file("swarm.SecretReferenceFileTarget")),
  SecretID: text("secretId"),
  SecretName: text("secretName"),
});

const config = shape(
  "swarm.ConfigReference",
  ConfigReference,
  {
    File: object("file", file("swarm.ConfigReferenceFileTarget")),
    Runtime: object("runtime", shape("swarm.ConfigReferenceRuntimeTarget", RuntimeTarget, {})),
    ConfigID: text("configId"),
    ConfigName: text("configName"),
  },
  (reference) => {
    if (reference.file === null && reference.runtime === null)
      throw badRequest("invalid Config: either File or Runtime should be set");
    if (reference.file !== null && reference.runtime !== null)
      throw badRequest("invalid Config: cannot specify both File and Runtime");
    return reference;
  },
);

const credentialSpec = shape(
  "swarm.CredentialSpec",
  Privileges_CredentialSpec,
  { Config: text("config"), File: text("file"), Registry: text("registry") },
  ({ config: ofConfig, file: ofFile, registry }) => {
    const given = Object.entries({ config: ofConfig, file: ofFile, registry }).filter(([, value]) => !!value);
    const names = given.map(([name]) => JSON.stringify(name));
    if (given.length === 0)
      throw badRequest(
        'invalid CredentialSpec: must either provide "file", "registry", or "config" for credential spec',
      );
    if (given.length === 2)
      throw badRequest(`invalid CredentialSpec: cannot specify both ${names.join(" and ")} credential specs`);
    if (given.length > 2)
      throw badRequest(
        `invalid CredentialSpec: cannot specify both ${names.slice(0, -1).join(", ")}, and ${names.at(-1) ?? ""} credential specs`,
      );
    // Exactly one is set: they are alternatives.
    return Privileges_CredentialSpec.create(Object.fromEntries(given));
  },
);

const privileges = shape("swarm.Privileges", Privileges, {
  CredentialSpec: object("credentialSpec", credentialSpec),
  SELinuxContext: object(
    "selinuxContext",
    shape("swarm.SELinuxContext", Privileges_SELinuxContext, {
      Disable: flag("disable"),
      User: text("user"),
      Role: text("role"),
      Type: text("type"),
      Level: text("level"),
    }),
  ),
  Seccomp: object(
    "seccomp",
    shape("swarm.SeccompOpts", Privileges_SeccompOpts, {
      Mode: word(
        "mode",
        "swarm.SeccompMode",
        enumOf(
          Privileges_SeccompOpts_SeccompMode,
          Privileges_SeccompOpts_SeccompMode.DEFAULT,
          (given) => `invalid Privileges: unsupported seccomp mode: ${given}`,
        ),
      ),
      Profile: bytes("profile"),
    }),
  ),
  AppArmor: object(
    "apparmor",
    shape("swarm.AppArmorOpts", Privileges_AppArmorOpts, {
      Mode: word(
        "mode",
        "swarm.AppArmorMode",
        enumOf(
          Privileges_AppArmorOpts_AppArmorMode,
          Privileges_AppArmorOpts_AppArmorMode.DEFAULT,
          (given) => `invalid Privileges: unsupported apparmor mode: ${given}`,
        ),
      ),
    }),
  ),
  NoNewPrivileges: flag("noNewPrivileges"),
});

/** A stock engine always writes the times that its API knew first. */
const health = shape(
  "container.HealthConfig",
  HealthConfig,
  {
    Test: texts("test"),
    Interval: duration("interval"),
    Timeout: duration("timeout"),
    StartPeriod: duration("startPeriod"),
    StartInterval: duration("startInterval"),
    Retries: integer("retries", "int"),
  },
  (given) => {
    const none = Duration.create({});
    return HealthConfig.patch(given, {
      interval: given.interval ?? none,
      timeout: given.timeout ?? none,
      startPeriod: given.startPeriod ?? none,
    });
  },
);

export const container = shape("swarm.ContainerSpec", ContainerSpec, {
  Image: text("image"),
  Labels: map("labels"),
  Command: texts("command"),
  Args: texts("args"),
  Hostname: text("hostname"),
  Env: texts("env"),
  Dir: text("dir"),
  User: text("user"),
  Groups: texts("groups"),
  Privileges: object("privileges", privileges),
  Init: maybeFlag("init", BoolValue),
  StopSignal: text("stopSignal"),
  TTY: flag("tty"),
  OpenStdin: flag("openStdin"),
  ReadOnly: flag("readOnly"),
  Configs: list("configs", config, "*"),
  Mounts: list("mounts", mount),
  StopGracePeriod: duration("stopGracePeriod"),
  Healthcheck: object("healthcheck", health),
  Hosts: texts("hosts"),
  DNSConfig: object(
    "dnsConfig",
    shape("swarm.DNSConfig", ContainerSpec_DNSConfig, {
      Nameservers: texts("nameservers"),
      Search: texts("search"),
      Options: texts("options"),
    }),
  ),
  Secrets: list("secrets", secret, "*"),
  Isolation: word("isolation", "container.Isolation", (given) =>
    given.toLowerCase() === "hyperv"
      ? ContainerSpec_Isolation.ISOLATION_HYPERV
      : given.toLowerCase() === "process"
        ? ContainerSpec_Isolation.ISOLATION_PROCESS
        : ContainerSpec_Isolation.ISOLATION_DEFAULT,
  ),
  Sysctls: map("sysctls"),
  CapabilityAdd: texts("capabilityAdd"),
  CapabilityDrop: texts("capabilityDrop"),
  Ulimits: list(
    "ulimits",
    shape("units.Ulimit", ContainerSpec_Ulimit, {
      Name: text("name"),
      Hard: integer("hard", "int64"),
      Soft: integer("soft", "int64"),
    }),
    "*",
  ),
  OomScoreAdj: integer("oomScoreAdj", "int64"),
});
