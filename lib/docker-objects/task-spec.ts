/** The task spec of a service in Docker's API format. */
import {
  ExecSpec,
  RestartPolicy_RestartCondition,
  type GenericResource,
  type NetworkAttachmentConfig,
  type Placement,
  type ResourceRequirements,
  type RestartPolicy,
  type TaskSpec,
} from "../../proto/gen/messages.ts";
import { containerObject } from "./container.ts";
import {
  driverObject,
  enumWord,
  ifThere,
  mapUnlessEmpty,
  nanosOf,
  unlessEmpty,
  unlessNone,
  type DockerObject,
} from "./values.ts";

export function genericObjects(resources: readonly GenericResource[]): unknown {
  return unlessNone(
    resources.map(({ discreteResourceSpec: discrete, namedResourceSpec: named }) => ({
      NamedResourceSpec: ifThere(named, ({ kind, value }) => ({ Kind: kind, Value: value })),
      DiscreteResourceSpec: ifThere(discrete, ({ kind, value }) => ({ Kind: kind, Value: value })),
    })),
  );
}

/** Docker puts the process limit among the resource limits, SwarmKit in the container. */
function resourcesObject({ limits, reservations }: ResourceRequirements, pidsLimit: number): DockerObject {
  return {
    Limits: ifThere(limits, ({ memoryBytes, nanoCpus }) => ({
      NanoCPUs: unlessEmpty(nanoCpus),
      MemoryBytes: unlessEmpty(memoryBytes),
      Pids: unlessEmpty(pidsLimit),
    })),
    Reservations: ifThere(reservations, ({ generic, memoryBytes, nanoCpus }) => ({
      NanoCPUs: unlessEmpty(nanoCpus),
      MemoryBytes: unlessEmpty(memoryBytes),
      GenericResources: genericObjects(generic),
    })),
  };
}

function restartObject({ condition, delay, maxAttempts, window }: RestartPolicy): DockerObject {
  return {
    Condition: enumWord(RestartPolicy_RestartCondition, condition),
    Delay: ifThere(delay, nanosOf),
    MaxAttempts: maxAttempts,
    Window: ifThere(window, nanosOf),
  };
}

function placementObject({ constraints, maxReplicas, platforms, preferences }: Placement): DockerObject {
  return {
    Constraints: unlessNone(constraints),
    Preferences: unlessNone(
      preferences.map(({ spread }) => ({ Spread: { SpreadDescriptor: spread?.spreadDescriptor ?? "" } })),
    ),
    MaxReplicas: unlessEmpty(maxReplicas),
    Platforms: unlessNone(
      platforms.map(({ architecture, os }) => ({ Architecture: unlessEmpty(architecture), OS: unlessEmpty(os) })),
    ),
  };
}

export function attachmentObject({ aliases, driverAttachmentOpts, target }: NetworkAttachmentConfig): DockerObject {
  return {
    Target: unlessEmpty(target),
    Aliases: unlessNone(aliases),
    DriverOpts: mapUnlessEmpty(driverAttachmentOpts),
  };
}

/** The payload of an exec task; undefined when its version is unknown. */
function execObject(payload: Uint8Array): DockerObject | undefined {
  try {
    const { args, command, dir, env, stopSignal, user } = ExecSpec.decode(payload);
    return {
      Command: command,
      Args: unlessNone(args),
      Env: unlessNone(env),
      Dir: unlessEmpty(dir),
      User: unlessEmpty(user),
      StopSignal: unlessEmpty(stopSignal),
    };
  } catch {
    return undefined;
  }
}

export function taskSpecObject(spec: TaskSpec): DockerObject {
  const kind = spec.generic?.kind ?? "";
  return {
    ContainerSpec: ifThere(spec.container, containerObject),
    PluginSpec: undefined,
    NetworkAttachmentSpec: ifThere(spec.attachment, ({ containerId }) => ({ ContainerID: containerId })),
    // Docker has only plugins here; the kind identifies an exec task.
    GenericSpec: ifThere(spec.generic, ({ payload }) => ({
      Kind: kind,
      TypeURL: payload?.type_url ?? "",
      Exec: kind === "exec" ? ifThere(payload?.value, execObject) : undefined,
    })),
    Resources: ifThere(spec.resources, (resources) => resourcesObject(resources, spec.container?.pidsLimit ?? 0)),
    RestartPolicy: ifThere(spec.restart, restartObject),
    Placement: ifThere(spec.placement, placementObject),
    Networks: unlessNone(spec.networks.map(attachmentObject)),
    LogDriver: ifThere(spec.logDriver, driverObject),
    ForceUpdate: spec.forceUpdate,
    Runtime: spec.container === null ? unlessEmpty(kind) : "container",
  };
}
