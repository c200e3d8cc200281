/** Converts flags to a service's spec: created by `service create`, changed by `service update`. */
import { createHash, randomBytes } from "node:crypto";
import { driverRuntimeOf } from "../../machines/driver/spec.ts";
import {
  Annotations,
  EndpointSpec,
  ExecSpec,
  GlobalJob,
  GlobalService,
  Mount_Type,
  Placement,
  PlacementPreference,
  ReplicatedJob,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  ServiceSpec,
  SpreadOver,
  TaskSpec,
  type GenericResource,
  type Mount,
} from "../../proto/gen/messages.ts";
import { parsePublish, portsAfter } from "../publish-flag.ts";
import { containerAfter, newContainer, pairsAfter } from "./container.ts";
import { dnsAfter, newDns, processDns } from "./dns.ts";
import { environmentAfter, newEnvironment } from "./environment.ts";
import { driverTaskAfter, newDriverTask } from "./driver.ts";
import { containerFlagIn, type CreateValues, type UpdateValues } from "./flags.ts";
import {
  configReferences,
  networksAfter,
  noLookups,
  parseNetwork,
  secretReferences,
  sortedNetworks,
  type Lookups,
} from "./references.ts";
import { mountsAfter, parseMount } from "./mount-flag.ts";
import { execOf, execTask, genericResources, withSettings } from "./settings.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { anyNumber, parseCount, parseLabels, shellWords } from "../values.ts";

function modeFields(flags: CreateValues): Partial<ServiceSpec> {
  const mode = flags.mode ?? "replicated";
  switch (mode) {
    case "replicated":
      return { replicated: ReplicatedService.create({ replicas: 1 }) };
    case "global":
      return { global: GlobalService.create({}) };
    case "global-job":
      return { globalJob: GlobalJob.create({}) };
    case "replicated-job": {
      const count = (flag: "replicas" | "max-concurrent"): number | null => {
        const text = flags[flag];
        return text === undefined ? null : parseCount(text, flag, anyNumber);
      };
      // Docker's rule: all tasks concurrently by default; --max-concurrent alone also sets the total.
      const concurrent = count("max-concurrent") ?? count("replicas") ?? 1;
      const total = count("replicas") ?? concurrent;
      return { replicatedJob: ReplicatedJob.create({ totalCompletions: total, maxConcurrent: concurrent }) };
    }
    default:
      throw new UsageError(
        `invalid argument "${mode}" for "--mode" flag: expected one of replicated, global, replicated-job, global-job`,
      );
  }
}

function preferences(texts: readonly string[], flag: string): readonly PlacementPreference[] {
  return texts.map((text) => {
    const match = /^spread=([^=]+)$/.exec(text);
    if (match === null) throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected spread=LABEL`);
    return PlacementPreference.create({ spread: SpreadOver.create({ spreadDescriptor: match[1] as string }) });
  });
}

/** Generates a name, like Docker. */
function inventedName(words: readonly string[]): string {
  const base =
    (words[0] ?? "service")
      .split("/")
      .at(-1)
      ?.split(":")[0]
      ?.replaceAll(/[^a-zA-Z0-9]+/g, "-") ?? "";
  const stem = base.replaceAll(/^-+|-+$/g, "").slice(0, 50) || "service";
  return `${stem}-${createHash("sha256").update(randomBytes(16)).digest("hex").slice(0, 6)}`;
}

/** Rejects container flags for a service of plain processes. */
function refuseContainerFlags(flags: CreateValues | UpdateValues): void {
  const flag = containerFlagIn(flags);
  if (flag !== null) throw new UsageError(`--${flag} is supported for containers only`);
}

/** A process sees the node's file system; only cluster volumes can be mounted for it. */
function processMounts(mounts: readonly Mount[], flag: string): readonly Mount[] {
  if (mounts.some(({ type }) => type !== Mount_Type.CLUSTER))
    throw new UsageError(`--${flag}: only type=cluster is supported without containers`);
  return mounts;
}

function runtime(flags: CreateValues, words: readonly string[], lookups: Lookups): Partial<TaskSpec> {
  const driver = flags.driver ?? "container";
  const isPlugin = driver !== "container" && (driver !== "exec" || flags["driver-config"] !== undefined);
  if (isPlugin) {
    refuseContainerFlags(flags);
    return newDriverTask(driver, flags, words, lookups);
  }
  if (flags.device !== undefined) throw new UsageError("--device requires --driver NAME and --driver-config");
  if (driver === "exec") {
    const [program, ...args] = words;
    if (program === undefined)
      throw new UsageError("the command is missing: --driver exec [OPTIONS] -- COMMAND [ARG...]");
    refuseContainerFlags(flags);
    // A name without a value sets nothing.
    const env = newEnvironment(flags).filter((entry) => entry.includes("="));
    const secrets = secretReferences(flags.secret ?? [], lookups);
    const configs = configReferences(flags.config ?? [], lookups);
    const mounts = processMounts(
      (flags.mount ?? []).map((text) => parseMount(text)),
      "mount",
    );
    const dns = processDns(newDns(flags));
    return execTask(ExecSpec.create({ command: program, args, env, secrets, configs, mounts, dns }));
  }
  if (flags["driver-config"] !== undefined) throw new UsageError("--driver-config requires --driver NAME");
  const [image, ...args] = words;
  if (image === undefined) throw new UsageError("the image is missing: [OPTIONS] IMAGE [COMMAND] [ARG...]");
  return { container: newContainer(image, args, flags, lookups) };
}

/**
 * `words`: the image or program, and its arguments. Messages that Docker's client writes empty are written here too, so that
 * both produce the same spec. Throws UsageError and UserError.
 */
export function newSpec(flags: CreateValues, words: readonly string[], lookups = noLookups): ServiceSpec {
  const networks = (flags.network ?? []).map((text) => parseNetwork(text, lookups));
  const spec = ServiceSpec.create({
    annotations: Annotations.create({
      name: flags.name || inventedName(words),
      labels: parseLabels(flags.label ?? []),
    }),
    task: TaskSpec.create({
      ...runtime(flags, words, lookups),
      resources: ResourceRequirements.create({
        limits: Resources.create({}),
        reservations: Resources.create({
          generic: genericResources(flags["generic-resource"] ?? [], "generic-resource"),
        }),
      }),
      placement: Placement.create({
        constraints: flags.constraint ?? [],
        preferences: preferences(flags["placement-pref"] ?? [], "placement-pref"),
      }),
      networks: sortedNetworks(networks),
    }),
    ...modeFields(flags),
    endpoint: EndpointSpec.create({ ports: (flags.publish ?? []).flatMap((text) => parsePublish(text)) }),
  });
  return withSettings(spec, flags);
}

function placementAfter(before: Placement | null, flags: UpdateValues): Placement | null {
  const base = before ?? Placement.create({});
  const [addedConstraints, removedConstraints] = [flags["constraint-add"], flags["constraint-rm"]];
  const [addedPreferences, removedPreferences] = [flags["placement-pref-add"], flags["placement-pref-rm"]];
  const areConstraintsChanged = (addedConstraints ?? removedConstraints) !== undefined;
  const arePreferencesChanged = (addedPreferences ?? removedPreferences) !== undefined;
  if (!areConstraintsChanged && !arePreferencesChanged) return before;
  const gone = preferences(removedPreferences ?? [], "placement-pref-rm").map(({ spread }) => spread?.spreadDescriptor);
  return Placement.patch(base, {
    constraints: areConstraintsChanged
      ? [...base.constraints, ...(addedConstraints ?? [])]
          .filter((constraint) => !(removedConstraints ?? []).includes(constraint))
          .toSorted()
      : base.constraints,
    // Not sorted: the order defines the spread tree.
    preferences: [
      ...base.preferences.filter(({ spread }) => !gone.includes(spread?.spreadDescriptor)),
      ...preferences(addedPreferences ?? [], "placement-pref-add"),
    ],
  });
}

function kindOf({ discreteResourceSpec, namedResourceSpec }: GenericResource): string {
  return discreteResourceSpec?.kind ?? namedResourceSpec?.kind ?? "";
}

function genericAfter(before: ResourceRequirements | null, flags: UpdateValues): ResourceRequirements | null {
  const [added, removed] = [flags["generic-resource-add"], flags["generic-resource-rm"]];
  if ((added ?? removed) === undefined) return before;
  const reservations = before?.reservations ?? Resources.create({});
  const byKind = new Map(reservations.generic.map((resource) => [kindOf(resource), resource]));
  for (const resource of genericResources(added ?? [], "generic-resource-add")) byKind.set(kindOf(resource), resource);
  for (const kind of removed ?? []) {
    if (!byKind.delete(kind)) throw new UserError(`could not find generic-resource "${kind}" to remove it`);
  }
  return ResourceRequirements.patch(before ?? ResourceRequirements.create({}), {
    reservations: Resources.patch(reservations, { generic: [...byKind.values()] }),
  });
}

function runtimeAfter(before: TaskSpec, flags: UpdateValues, lookups: Lookups): Partial<TaskSpec> {
  const ofPlugins = (["driver-config", "device-add", "device-rm"] as const).find((flag) => flags[flag] !== undefined);
  if (before.container !== null && ofPlugins !== undefined)
    throw new UsageError(`--${ofPlugins} is supported for driver plugins only, but this service runs containers`);
  if (before.container !== null) return { container: containerAfter(before.container, flags, lookups) };
  refuseContainerFlags(flags);
  const runtime = driverRuntimeOf(before);
  if (runtime !== null) return driverTaskAfter(runtime.kind, runtime.spec, flags, lookups, before);
  if (ofPlugins !== undefined) throw new UsageError(`--${ofPlugins} is supported for driver plugins only`);
  const exec = execOf(before);
  if (exec === null) return {};
  const changed = ExecSpec.patch(exec, {
    env: environmentAfter(exec.env, flags).filter((entry) => entry.includes("=")),
    args: flags.args === undefined ? exec.args : shellWords(flags.args, "args"),
    secrets: [
      ...exec.secrets.filter(({ secretName }) => !(flags["secret-rm"] ?? []).includes(secretName)),
      ...secretReferences(flags["secret-add"] ?? [], lookups, "secret-add"),
    ],
    configs: [
      ...exec.configs.filter(({ configName }) => !(flags["config-rm"] ?? []).includes(configName)),
      ...configReferences(flags["config-add"] ?? [], lookups, "config-add"),
    ],
    mounts: processMounts(mountsAfter(exec.mounts, flags["mount-add"] ?? [], flags["mount-rm"] ?? []), "mount-add"),
    dns: processDns(dnsAfter(exec.dns, flags)),
  });
  return execTask(changed, before);
}

/** The networks of the task; those of a spec from before 2017 move there on the first change. */
function networkFields(spec: ServiceSpec, flags: UpdateValues, lookups: Lookups): Partial<ServiceSpec> {
  const [added, removed] = [flags["network-add"], flags["network-rm"]];
  const task = spec.task ?? TaskSpec.create({});
  if ((added ?? removed) === undefined) return { task };
  const before = task.networks.length > 0 ? task.networks : spec.networks;
  return {
    task: TaskSpec.patch(task, { networks: networksAfter(before, added ?? [], removed ?? [], lookups) }),
    networks: [],
  };
}

/** Applies the flags to `before`. Throws UsageError and UserError. */
export function changedSpec(before: ServiceSpec, flags: UpdateValues, lookups = noLookups): ServiceSpec {
  const annotations = before.annotations ?? Annotations.create({});
  const task = before.task ?? TaskSpec.create({});
  const arePortsChanged = (flags["publish-add"] ?? flags["publish-rm"]) !== undefined;
  const endpoint = before.endpoint ?? EndpointSpec.create({});
  const spec = ServiceSpec.patch(before, {
    annotations: Annotations.patch(annotations, {
      labels: pairsAfter(annotations.labels, parseLabels(flags["label-add"] ?? [], "label-add"), flags["label-rm"]),
    }),
    task: TaskSpec.patch(task, {
      ...runtimeAfter(task, flags, lookups),
      resources: genericAfter(task.resources, flags),
      placement: placementAfter(task.placement, flags),
      forceUpdate: task.forceUpdate + (flags.force === true ? 1 : 0),
    }),
    endpoint: arePortsChanged
      ? EndpointSpec.patch(endpoint, {
          ports: portsAfter(endpoint.ports, flags["publish-add"] ?? [], flags["publish-rm"] ?? []),
        })
      : before.endpoint,
  });
  return withSettings(ServiceSpec.patch(spec, networkFields(spec, flags, lookups)), flags);
}
