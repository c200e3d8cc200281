/** The container spec of a task in Docker's API format. */
import {
  ContainerSpec_Isolation,
  Mount_BindOptions_Propagation,
  Mount_Consistency,
  Mount_Type,
  Privileges_AppArmorOpts_AppArmorMode,
  Privileges_SeccompOpts_SeccompMode,
  type ConfigReference,
  type ContainerSpec,
  type FileTarget,
  type HealthConfig,
  type Mount,
  type Privileges,
  type SecretReference,
} from "../../proto/gen/messages.ts";
import {
  base64,
  driverObject,
  enumWord,
  ifThere,
  mapUnlessEmpty,
  nanosOf,
  unlessEmpty,
  unlessNone,
  type DockerObject,
} from "./values.ts";

function privilegesObject({
  apparmor,
  credentialSpec,
  noNewPrivileges,
  seccomp,
  selinuxContext,
}: Privileges): DockerObject {
  return {
    CredentialSpec:
      credentialSpec === null
        ? null
        : {
            Config: unlessEmpty(credentialSpec.config ?? ""),
            File: unlessEmpty(credentialSpec.file ?? ""),
            Registry: unlessEmpty(credentialSpec.registry ?? ""),
          },
    SELinuxContext:
      selinuxContext === null
        ? null
        : {
            Disable: selinuxContext.disable,
            User: selinuxContext.user,
            Role: selinuxContext.role,
            Type: selinuxContext.type,
            Level: selinuxContext.level,
          },
    Seccomp: ifThere(seccomp, ({ mode, profile }) => ({
      Mode: enumWord(Privileges_SeccompOpts_SeccompMode, mode),
      Profile: profile.length === 0 ? undefined : base64(profile),
    })),
    AppArmor: ifThere(apparmor, ({ mode }) => ({ Mode: enumWord(Privileges_AppArmorOpts_AppArmorMode, mode) })),
    NoNewPrivileges: noNewPrivileges,
  };
}

/** Docker's propagation names are the wire's in lower case. */
function mountObject(mount: Mount): DockerObject {
  return {
    Type: enumWord(Mount_Type, mount.type),
    Source: unlessEmpty(mount.source),
    Target: unlessEmpty(mount.target),
    ReadOnly: unlessEmpty(mount.readonly),
    Consistency:
      mount.consistency === Mount_Consistency.DEFAULT ? undefined : enumWord(Mount_Consistency, mount.consistency),
    BindOptions: ifThere(mount.bindOptions, (options) => ({
      Propagation: enumWord(Mount_BindOptions_Propagation, options.propagation),
      NonRecursive: unlessEmpty(options.nonrecursive),
      CreateMountpoint: unlessEmpty(options.createmountpoint),
      ReadOnlyNonRecursive: unlessEmpty(options.readonlynonrecursive),
      ReadOnlyForceRecursive: unlessEmpty(options.readonlyforcerecursive),
    })),
    VolumeOptions: ifThere(mount.volumeOptions, (options) => ({
      NoCopy: unlessEmpty(options.nocopy),
      Labels: mapUnlessEmpty(options.labels),
      Subpath: unlessEmpty(options.subpath),
      DriverConfig: ifThere(options.driverConfig, driverObject),
    })),
    TmpfsOptions: ifThere(mount.tmpfsOptions, (options) => ({
      SizeBytes: unlessEmpty(options.sizeBytes),
      Mode: unlessEmpty(options.mode),
    })),
  };
}

function healthObject(health: HealthConfig): DockerObject {
  const nanos = (duration: HealthConfig["interval"]): unknown =>
    ifThere(duration, (each) => unlessEmpty(nanosOf(each)));
  return {
    Test: unlessNone(health.test),
    Interval: nanos(health.interval),
    Timeout: nanos(health.timeout),
    StartPeriod: nanos(health.startPeriod),
    StartInterval: nanos(health.startInterval),
    Retries: unlessEmpty(health.retries),
  };
}

function fileObject({ gid, mode, name, uid }: FileTarget): DockerObject {
  return { Name: name, UID: uid, GID: gid, Mode: mode };
}

function secretObject({ file, secretId, secretName }: SecretReference): DockerObject {
  return { File: file === null ? null : fileObject(file), SecretID: secretId, SecretName: secretName };
}

function configObject({ configId, configName, file, runtime }: ConfigReference): DockerObject {
  return {
    File: ifThere(file, fileObject),
    Runtime: ifThere(runtime, () => ({})),
    ConfigID: configId,
    ConfigName: configName,
  };
}

export function containerObject(spec: ContainerSpec): DockerObject {
  return {
    Image: unlessEmpty(spec.image),
    Labels: mapUnlessEmpty(spec.labels),
    Command: unlessNone(spec.command),
    Args: unlessNone(spec.args),
    Hostname: unlessEmpty(spec.hostname),
    Env: unlessNone(spec.env),
    Dir: unlessEmpty(spec.dir),
    User: unlessEmpty(spec.user),
    Groups: unlessNone(spec.groups),
    Privileges: ifThere(spec.privileges, privilegesObject),
    Init: ifThere(spec.init, ({ value }) => value),
    StopSignal: unlessEmpty(spec.stopSignal),
    TTY: unlessEmpty(spec.tty),
    OpenStdin: unlessEmpty(spec.openStdin),
    ReadOnly: unlessEmpty(spec.readOnly),
    Mounts: unlessNone(spec.mounts.map(mountObject)),
    StopGracePeriod: ifThere(spec.stopGracePeriod, nanosOf),
    Healthcheck: ifThere(spec.healthcheck, healthObject),
    Hosts: unlessNone(spec.hosts),
    DNSConfig: ifThere(spec.dnsConfig, ({ nameservers, options, search }) => ({
      Nameservers: unlessNone(nameservers),
      Search: unlessNone(search),
      Options: unlessNone(options),
    })),
    Secrets: unlessNone(spec.secrets.map(secretObject)),
    Configs: unlessNone(spec.configs.map(configObject)),
    Isolation: enumWord(ContainerSpec_Isolation, spec.isolation).replace("isolation-", ""),
    Sysctls: mapUnlessEmpty(spec.sysctls),
    CapabilityAdd: unlessNone(spec.capabilityAdd),
    CapabilityDrop: unlessNone(spec.capabilityDrop),
    Ulimits: unlessNone(spec.ulimits.map(({ hard, name, soft }) => ({ Name: name, Hard: hard, Soft: soft }))),
    OomScoreAdj: unlessEmpty(spec.oomScoreAdj),
  };
}
