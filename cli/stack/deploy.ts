/**
 * Deploys a Compose project: networks, then secrets, configs and services. Unchanged objects are not written, so that deploying
 * the same files again restarts no task. The whole project is read and converted before the first write: an error in the last
 * service leaves the cluster unchanged.
 */
import { isSameMessage } from "../../machines/same-message.ts";
import {
  type Annotations,
  type ConfigSpec,
  ContainerSpec,
  ControlService,
  CreateConfigRequest,
  CreateNetworkRequest,
  CreateSecretRequest,
  CreateServiceRequest,
  Duration,
  GetServiceRequest,
  HealthConfig,
  Mount,
  Mount_TmpfsOptions,
  RemoveServiceRequest,
  type SecretSpec,
  ServiceSpec,
  TaskSpec,
  UpdateConfigRequest,
  UpdateSecretRequest,
  UpdateServiceRequest,
  Version,
  type IPAMConfig,
  type NetworkSpec,
  type Service,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { retryingConflicts, type ManagerClient } from "../manager-client.ts";
import type { Lookups } from "../service/references.ts";
import { withRegistryAuth } from "../service/registry-auth.ts";
import { serviceWarnings } from "../service/warnings.ts";
import { UserError } from "../../lib/user-error.ts";
import { converted } from "./convert-project.ts";
import { nameOf, surroundings, type Held } from "./held.ts";
import { taggedImage } from "./image.ts";
import { imageLabel } from "./names.ts";
import { inTurn } from "./order.ts";
import type { Project } from "./project.ts";

const methods = ControlService.methods;

export interface DeployOptions {
  readonly stack: string;
  /** Remove services that are no longer in the project. */
  readonly isPruning: boolean;
  readonly isAuthSent: boolean;
  /** `always`: set the image of the file; otherwise a pinned image stays while the file's image is the same. */
  readonly resolveImage: "always" | "changed" | "never";
  /** Prints a line for each change. */
  print(text: string): void;
  /** Reports suspicious settings that are not errors. */
  warn(text: string): void;
}

/** Ids by name; `pending`: names that will exist later. */
function lookupsOf(held: Held, pending: { readonly [Kind in keyof Lookups]: ReadonlySet<string> }): Lookups {
  const by = (
    kind: keyof Lookups,
    items: readonly { readonly id: string; readonly spec: { readonly annotations: Annotations | null } | null }[],
  ): ((name: string) => string) => {
    const ids = new Map(items.map((item) => [nameOf(item), item.id]));
    return (name) => {
      const id = ids.get(name) ?? (pending[kind].has(name) ? name : undefined);
      if (id === undefined) {
        throw new UserError(
          `${kind} '${name}' is declared as external, but could not be found: create it before deploying the stack`,
        );
      }
      return id;
    };
  };
  return {
    network: by("network", held.networks),
    secret: by("secret", held.secrets),
    config: by("config", held.configs),
  };
}

const nothingPending = { network: new Set<string>(), secret: new Set<string>(), config: new Set<string>() };

async function makeNetworks(
  client: ManagerClient,
  wanted: ReadonlyMap<string, NetworkSpec>,
  held: Held,
  { print, warn }: DeployOptions,
): Promise<void> {
  const known = new Map(held.networks.map((network) => [nameOf(network), network]));
  for (const [name, spec] of wanted) {
    const there = known.get(name)?.spec;
    if (there == null) {
      print(`Creating network ${name}`);
      await client.call(methods.CreateNetwork, CreateNetworkRequest.create({ spec }));
    } else if (!isSameNetwork(there, spec)) {
      warn(`network ${name} keeps its settings, which differ from the file: networks cannot be changed`);
    }
  }
}

/** Compares without labels and fields that the allocator filled in. */
function isSameNetwork(there: NetworkSpec, wanted: NetworkSpec): boolean {
  return (
    isSameMessage(there.driverConfig, wanted.driverConfig) &&
    there.internal === wanted.internal &&
    there.attachable === wanted.attachable &&
    there.ipv6Enabled === wanted.ipv6Enabled &&
    (wanted.ipam === null || areSameRanges(there.ipam?.configs ?? [], wanted.ipam.configs))
  );
}

/** A stock manager writes its chosen gateway into the spec. */
function areSameRanges(there: readonly IPAMConfig[], wanted: readonly IPAMConfig[]): boolean {
  const isSame = (range: IPAMConfig, held: IPAMConfig | undefined): boolean =>
    held !== undefined &&
    held.subnet === range.subnet &&
    held.range === range.range &&
    (range.gateway === "" || held.gateway === range.gateway) &&
    Object.entries(range.reserved).every(([name, address]) => held.reserved[name] === address);
  return there.length === wanted.length && wanted.every((range, at) => isSame(range, there[at]));
}

const otherContent = (kind: string, name: string): UserError =>
  new UserError(
    `${kind} ${name} exists with other content, which cannot be changed: set another name in the file ('name:')`,
  );

/**
 * Whether the secret in the cluster has this content, which cannot be read. The manager compares the content before the
 * version, so that an update with an impossible version answers without a write.
 */
async function isSameSecret(client: ManagerClient, secretId: string, spec: SecretSpec): Promise<boolean> {
  const request = UpdateSecretRequest.create({ secretId, secretVersion: Version.create({ index: 0 }), spec });
  try {
    await client.call(methods.UpdateSecret, request);
    return true;
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    if (error.code === Status.INVALID_ARGUMENT) return false;
    // A stock manager uses another code.
    if (error.code === Status.ABORTED || /out of sequence/.test(error.message)) return true;
    throw error;
  }
}

async function makeSecrets(
  client: ManagerClient,
  wanted: readonly SecretSpec[],
  held: Held,
  { print }: DeployOptions,
): Promise<void> {
  const known = new Map(held.secrets.map((secret) => [nameOf(secret), secret]));
  for (const spec of wanted) {
    const name = spec.annotations?.name ?? "";
    const there = known.get(name);
    if (there === undefined) {
      print(`Creating secret ${name}`);
      await client.call(methods.CreateSecret, CreateSecretRequest.create({ spec }));
      continue;
    }
    if (!(await isSameSecret(client, there.id, spec))) throw otherContent("secret", name);
    if (isSameMessage(there.spec?.annotations?.labels, spec.annotations?.labels)) continue;
    print(`Updating secret ${name} (id: ${there.id})`);
    const secretVersion = there.meta?.version ?? null;
    await client.call(methods.UpdateSecret, UpdateSecretRequest.create({ secretId: there.id, secretVersion, spec }));
  }
}

async function makeConfigs(
  client: ManagerClient,
  wanted: readonly ConfigSpec[],
  held: Held,
  { print }: DeployOptions,
): Promise<void> {
  const known = new Map(held.configs.map((config) => [nameOf(config), config]));
  for (const spec of wanted) {
    const name = spec.annotations?.name ?? "";
    const there = known.get(name);
    if (there === undefined) {
      print(`Creating config ${name}`);
      await client.call(methods.CreateConfig, CreateConfigRequest.create({ spec }));
      continue;
    }
    if (!isSameMessage(there.spec?.data, spec.data)) throw otherContent("config", name);
    if (isSameMessage(there.spec?.annotations?.labels, spec.annotations?.labels)) continue;
    print(`Updating config ${name} (id: ${there.id})`);
    const configVersion = there.meta?.version ?? null;
    await client.call(methods.UpdateConfig, UpdateConfigRequest.create({ configId: there.id, configVersion, spec }));
  }
}

/** `wanted`, with what a deployment preserves: forced restarts, a login, and an image pinned to a digest. */
function keeping(
  before: ServiceSpec | null,
  wanted: ServiceSpec,
  { isAuthSent, resolveImage }: DeployOptions,
): ServiceSpec {
  const [task, container] = [wanted.task, wanted.task?.container];
  if (task === null || container == null) return wanted;
  const held = before?.task?.container;
  const isSameImage = before?.annotations?.labels[imageLabel] === container.image;
  const pinned =
    isSameImage && resolveImage !== "always" ? (held?.image ?? container.image) : taggedImage(container.image);
  const kept = ServiceSpec.patch(wanted, {
    task: TaskSpec.patch(task, {
      forceUpdate: before?.task?.forceUpdate ?? 0,
      container: ContainerSpec.patch(container, {
        image: pinned,
        pullOptions: held?.pullOptions ?? null,
        secrets: inOrderOf(held?.secrets ?? [], container.secrets),
        configs: inOrderOf(held?.configs ?? [], container.configs),
      }),
    }),
  });
  return isAuthSent ? withRegistryAuth(kept) : kept;
}

/**
 * Engines before Docker 25 write no start interval where later ones write zero, and those write the absent options of a tmpfs as
 * `null`.
 */
function inOneDialect(spec: ServiceSpec | null): ServiceSpec | null {
  const task = spec?.task ?? null;
  if (spec === null || task === null || task.container === null) return spec;
  const { healthcheck, mounts } = task.container;
  const startInterval = healthcheck?.startInterval ?? Duration.create({});
  return ServiceSpec.patch(spec, {
    task: TaskSpec.patch(task, {
      container: ContainerSpec.patch(task.container, {
        healthcheck: healthcheck === null ? null : HealthConfig.patch(healthcheck, { startInterval }),
        mounts: mounts.map((mount) =>
          mount.tmpfsOptions?.options === "null"
            ? Mount.patch(mount, { tmpfsOptions: Mount_TmpfsOptions.patch(mount.tmpfsOptions, { options: "" }) })
            : mount,
        ),
      }),
    }),
  });
}

/**
 * Returns `held` when both have the same elements: Docker's client lists secrets and configs in any order, which is irrelevant.
 */
function inOrderOf<One>(held: readonly One[], wanted: readonly One[]): One[] {
  const isSame =
    held.length === wanted.length && wanted.every((one) => held.some((other) => isSameMessage(one, other)));
  return [...(isSame ? held : wanted)];
}

async function makeService(
  client: ManagerClient,
  wanted: ServiceSpec,
  there: Service | undefined,
  options: DeployOptions,
): Promise<string | null> {
  const name = wanted.annotations?.name ?? "";
  if (there === undefined) {
    options.print(`Creating service ${name}`);
    const spec = keeping(null, wanted, options);
    const { service } = await client.call(methods.CreateService, CreateServiceRequest.create({ spec }));
    return service?.id ?? null;
  }
  let isAnnounced = false;
  return retryingConflicts(async () => {
    const request = GetServiceRequest.create({ serviceId: there.id });
    const { service } = await client.call(methods.GetService, request);
    const before = service?.spec ?? null;
    const spec = keeping(before, wanted, options);
    if (isSameMessage(inOneDialect(before), inOneDialect(spec))) {
      options.print(`Unchanged service ${name} (id: ${there.id})`);
      return null;
    }
    if (!isAnnounced) options.print(`Updating service ${name} (id: ${there.id})`);
    isAnnounced = true;
    const serviceVersion = service?.meta?.version ?? null;
    await client.call(
      methods.UpdateService,
      UpdateServiceRequest.create({ serviceId: there.id, serviceVersion, spec }),
    );
    return there.id;
  });
}

/** Returns the ids of created or changed services. Throws UserError; RpcError when the manager rejects a call. */
export async function deployProject(
  client: ManagerClient,
  project: Project,
  options: DeployOptions,
): Promise<readonly string[]> {
  const { stack } = options;
  const { configs, networks, secrets, services, specsWith } = converted(project, stack);
  const held = await surroundings(client, stack);
  const names = (specs: readonly { readonly annotations: Annotations | null }[]): Set<string> =>
    new Set(specs.map(({ annotations }) => annotations?.name ?? ""));
  const pending = { network: new Set(networks.own.keys()), secret: names(secrets), config: names(configs) };
  const rehearsed = specsWith(lookupsOf(held, pending));
  for (const text of await serviceWarnings(client, rehearsed)) options.warn(text);

  if (options.isPruning) {
    const wanted = names(rehearsed);
    for (const service of held.services.filter((each) => !wanted.has(nameOf(each)))) {
      options.print(`Removing service ${nameOf(service)}`);
      await client.call(methods.RemoveService, RemoveServiceRequest.create({ serviceId: service.id }));
    }
  }
  await makeNetworks(client, networks.own, held, options);
  await makeSecrets(client, secrets, held, options);
  await makeConfigs(client, configs, held, options);

  const specs = specsWith(lookupsOf(await surroundings(client, stack), nothingPending));
  const known = new Map(held.services.map((service) => [nameOf(service), service]));
  const changed = await inTurn(services, (_, at) => {
    const spec = specs[at] as ServiceSpec;
    return makeService(client, spec, known.get(spec.annotations?.name ?? ""), options);
  });
  return changed.filter((id) => id !== null);
}
