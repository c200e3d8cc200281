/** From flags to a service's spec: made whole by `service create`, changed in places by `service update`. */
import { createHash, randomBytes } from "node:crypto";
import {
  Annotations,
  ContainerSpec,
  DiscreteGenericResource,
  EndpointSpec,
  ExecSpec,
  GenericResource,
  GlobalJob,
  GlobalService,
  NetworkAttachmentConfig,
  type Placement,
  PlacementPreference,
  ReplicatedJob,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  ServiceSpec,
  SpreadOver,
  TaskSpec,
} from "../proto/gen/messages.ts";
import { UsageError } from "./command.ts";
import { parseMount, parsePublish } from "./publish-flag.ts";
import type { createFlags, FlagValues, updateFlags } from "./service-flags.ts";
import { execOf, given, ifGiven, placement, withExec, withSettings } from "./service-settings.ts";
import { parseCount, parseLabels } from "./values.ts";

export type CreateValues = FlagValues<typeof createFlags>;
export type UpdateValues = FlagValues<typeof updateFlags>;

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
      const total = flags.replicas === undefined ? 1 : parseCount(flags.replicas, "replicas");
      // Docker's: all at once unless told otherwise.
      return { replicatedJob: ReplicatedJob.create({ totalCompletions: total, maxConcurrent: total }) };
    }
    default:
      throw new UsageError(`--mode takes one of replicated, global, replicated-job, global-job, not '${mode}'`);
  }
}

function preferences(texts: readonly string[]): readonly PlacementPreference[] {
  return texts.map((text) => {
    if (!text.startsWith("spread=")) throw new UsageError(`--placement-pref takes spread=LABEL, not '${text}'`);
    return PlacementPreference.create({
      spread: SpreadOver.create({ spreadDescriptor: text.slice("spread=".length) }),
    });
  });
}

function genericResources(texts: readonly string[]): readonly GenericResource[] {
  return Object.entries(parseLabels(texts)).map(([kind, value]) =>
    GenericResource.create({
      discreteResourceSpec: DiscreteGenericResource.create({ kind, value: parseCount(value, "generic-resource") }),
    }),
  );
}

/** Environment as given: `NAME=value`, or `NAME` for the value that it has here. */
function environment(texts: readonly string[]): readonly string[] {
  return texts.map((text) => (text.includes("=") ? text : `${text}=${process.env[text] ?? ""}`));
}

/** Engines have no name for a service; Docker makes one up, and so does this. */
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

function runtime(flags: CreateValues, words: readonly string[]): Partial<TaskSpec> {
  const driver = flags.driver ?? "container";
  const env = environment(flags.env ?? []);
  if (driver === "exec") {
    const [program, ...args] = words;
    if (program === undefined)
      throw new UsageError("say what to run: muster service create --driver exec -- COMMAND [ARG...]");
    if (flags.mount !== undefined) throw new UsageError("--mount fits containers only");
    if (flags["container-label"] !== undefined) throw new UsageError("--container-label fits containers only");
    return { generic: withExec(ExecSpec.create({ command: program, args, env })) };
  }
  if (driver !== "container") throw new UsageError(`--driver takes container or exec, not '${driver}'`);
  const [image, ...args] = words;
  if (image === undefined)
    throw new UsageError("say which image: muster service create [OPTIONS] IMAGE [COMMAND] [ARG...]");
  return {
    container: ContainerSpec.create({
      image,
      args,
      env,
      labels: parseLabels(flags["container-label"] ?? []),
      mounts: (flags.mount ?? []).map((text) => parseMount(text)),
    }),
  };
}

/** `words`: the image or program, and its arguments. */
export function newSpec(flags: CreateValues, words: readonly string[]): ServiceSpec {
  const generic = genericResources(flags["generic-resource"] ?? []);
  const ports = (flags.publish ?? []).map((text) => parsePublish(text));
  const placed = given<Pick<Placement, "constraints" | "preferences">>({
    constraints: ifGiven(flags.constraint, (texts) => texts),
    preferences: ifGiven(flags["placement-pref"], preferences),
  });
  const spec = ServiceSpec.create({
    annotations: Annotations.create({
      name: flags.name ?? inventedName(words),
      labels: parseLabels(flags.label ?? []),
    }),
    task: TaskSpec.create({
      ...runtime(flags, words),
      placement: placement(null, placed),
      networks: (flags.network ?? []).map((target) => NetworkAttachmentConfig.create({ target })),
      ...(generic.length === 0
        ? {}
        : { resources: ResourceRequirements.create({ reservations: Resources.create({ generic }) }) }),
    }),
    ...modeFields(flags),
    ...(ports.length === 0 ? {} : { endpoint: EndpointSpec.create({ ports }) }),
  });
  return withSettings(spec, flags);
}

function without(
  texts: readonly string[],
  removed: readonly string[] | undefined,
  keyOf = (text: string) => text,
): readonly string[] {
  return texts.filter((text) => !(removed ?? []).includes(keyOf(text)));
}

const envName = (entry: string): string => entry.split("=")[0] as string;

function environmentAfter(before: readonly string[], flags: UpdateValues): readonly string[] {
  const added = environment(flags["env-add"] ?? []);
  return [...without(before, [...(flags["env-rm"] ?? []), ...added.map(envName)], envName), ...added];
}

function labelsAfter(
  before: Readonly<Record<string, string>>,
  added: readonly string[] | undefined,
  removed: readonly string[] | undefined,
): Readonly<Record<string, string>> {
  const labels = { ...before, ...parseLabels(added ?? []) };
  for (const label of removed ?? []) delete labels[label];
  return labels;
}

function portsAfter(before: EndpointSpec | null, flags: UpdateValues): EndpointSpec | null {
  if (flags["publish-add"] === undefined && flags["publish-rm"] === undefined) return before;
  // As Docker's: a port goes by its target.
  const removed = (flags["publish-rm"] ?? []).map((text) => parseCount(text.split("/")[0] as string, "publish-rm"));
  const added = (flags["publish-add"] ?? []).map((text) => parsePublish(text, "publish-add"));
  const kept = (before?.ports ?? []).filter(
    ({ targetPort, protocol }) =>
      !removed.includes(targetPort) &&
      !added.some((port) => port.targetPort === targetPort && port.protocol === protocol),
  );
  return EndpointSpec.patch(before ?? EndpointSpec.create({}), { ports: [...kept, ...added] });
}

function updatedContainer(before: ContainerSpec, flags: UpdateValues): ContainerSpec {
  const added = (flags["mount-add"] ?? []).map((text) => parseMount(text, "mount-add"));
  const gone = [...(flags["mount-rm"] ?? []), ...added.map(({ target }) => target)];
  return ContainerSpec.patch(before, {
    image: flags.image ?? before.image,
    args: flags.args === undefined ? before.args : flags.args.split(" ").filter((word) => word !== ""),
    env: environmentAfter(before.env, flags),
    labels: labelsAfter(before.labels, flags["container-label-add"], flags["container-label-rm"]),
    mounts: [...before.mounts.filter(({ target }) => !gone.includes(target)), ...added],
  });
}

function updatedTask(before: TaskSpec, flags: UpdateValues): TaskSpec {
  const exec = execOf(before);
  if (before.container === null && flags.image !== undefined) throw new UsageError("--image fits containers only");
  const constraints = [
    ...without(before.placement?.constraints ?? [], flags["constraint-rm"]),
    ...(flags["constraint-add"] ?? []),
  ];
  const isPlaced = flags["constraint-add"] !== undefined || flags["constraint-rm"] !== undefined;
  return TaskSpec.patch(before, {
    container: before.container === null ? null : updatedContainer(before.container, flags),
    generic:
      exec === null
        ? before.generic
        : withExec(
            ExecSpec.patch(exec, {
              env: environmentAfter(exec.env, flags),
              args: flags.args === undefined ? exec.args : flags.args.split(" ").filter((word) => word !== ""),
            }),
          ),
    placement: isPlaced ? placement(before.placement, { constraints }) : before.placement,
    forceUpdate: before.forceUpdate + (flags.force === true ? 1 : 0),
  });
}

/** `before` with what the flags say changed, and nothing else. */
export function changedSpec(before: ServiceSpec, flags: UpdateValues): ServiceSpec {
  const annotations = before.annotations ?? Annotations.create({});
  const spec = ServiceSpec.patch(before, {
    annotations: Annotations.patch(annotations, {
      labels: labelsAfter(annotations.labels, flags["label-add"], flags["label-rm"]),
    }),
    task: updatedTask(before.task ?? TaskSpec.create({}), flags),
    endpoint: portsAfter(before.endpoint, flags),
  });
  return withSettings(spec, flags);
}
