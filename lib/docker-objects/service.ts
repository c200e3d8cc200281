/** A service in Docker's API format. */
import {
  EndpointSpec_ResolutionMode,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  UpdateStatus_UpdateState,
  type EndpointSpec,
  type PortConfig,
  type Service,
  type ServiceSpec,
  type UpdateConfig,
} from "../../proto/gen/messages.ts";
import { attachmentObject, taskSpecObject } from "./task-spec.ts";
import {
  enumWord,
  head,
  ifThere,
  mapOf,
  nanosOf,
  timeText,
  unlessEmpty,
  unlessNone,
  type DockerObject,
} from "./values.ts";

export function portObject(port: PortConfig): DockerObject {
  return {
    Name: unlessEmpty(port.name),
    Protocol: enumWord(PortConfig_Protocol, port.protocol),
    TargetPort: unlessEmpty(port.targetPort),
    PublishedPort: unlessEmpty(port.publishedPort),
    PublishMode: enumWord(PortConfig_PublishMode, port.publishMode),
  };
}

function endpointSpecObject({ mode, ports }: EndpointSpec): DockerObject {
  return { Mode: enumWord(EndpointSpec_ResolutionMode, mode), Ports: unlessNone(ports.map(portObject)) };
}

function updateObject(config: UpdateConfig): DockerObject {
  return {
    Parallelism: config.parallelism,
    Delay: ifThere(config.delay, (delay) => unlessEmpty(nanosOf(delay))),
    FailureAction: enumWord(UpdateConfig_FailureAction, config.failureAction),
    Monitor: ifThere(config.monitor, (monitor) => unlessEmpty(nanosOf(monitor))),
    // Single precision: further digits are rounding errors.
    MaxFailureRatio: Number(config.maxFailureRatio.toPrecision(7)),
    Order: enumWord(UpdateConfig_UpdateOrder, config.order),
  };
}

function modeObject(spec: ServiceSpec): DockerObject {
  return {
    Replicated: ifThere(spec.replicated, ({ replicas }) => ({ Replicas: replicas })),
    Global: ifThere(spec.global, () => ({})),
    ReplicatedJob: ifThere(spec.replicatedJob, ({ maxConcurrent, totalCompletions }) => ({
      MaxConcurrent: maxConcurrent,
      TotalCompletions: totalCompletions,
    })),
    GlobalJob: ifThere(spec.globalJob, () => ({})),
  };
}

function serviceSpecObject(spec: ServiceSpec): DockerObject {
  return {
    Name: unlessEmpty(spec.annotations?.name ?? ""),
    Labels: mapOf(spec.annotations?.labels),
    TaskTemplate: ifThere(spec.task, taskSpecObject) ?? {},
    Mode: modeObject(spec),
    UpdateConfig: ifThere(spec.update, updateObject),
    RollbackConfig: ifThere(spec.rollback, updateObject),
    Networks: unlessNone(spec.networks.map(attachmentObject)),
    EndpointSpec: ifThere(spec.endpoint, endpointSpecObject),
  };
}

export function serviceObject(service: Service): DockerObject {
  const { endpoint, jobStatus, updateStatus } = service;
  const isUpdated = updateStatus !== null && updateStatus.state !== UpdateStatus_UpdateState.UNKNOWN;
  return {
    ...head(service),
    Spec: ifThere(service.spec, serviceSpecObject) ?? {},
    PreviousSpec: ifThere(service.previousSpec, serviceSpecObject),
    Endpoint: {
      Spec: ifThere(endpoint?.spec, endpointSpecObject) ?? {},
      Ports: unlessNone((endpoint?.ports ?? []).map(portObject)),
      VirtualIPs: unlessNone(
        (endpoint?.virtualIps ?? []).map(({ addr, networkId }) => ({
          NetworkID: unlessEmpty(networkId),
          Addr: unlessEmpty(addr),
        })),
      ),
    },
    UpdateStatus: isUpdated
      ? {
          State: enumWord(UpdateStatus_UpdateState, updateStatus.state, "_"),
          StartedAt: ifThere(updateStatus.startedAt, timeText),
          CompletedAt: ifThere(updateStatus.completedAt, timeText),
          Message: unlessEmpty(updateStatus.message),
        }
      : undefined,
    JobStatus: ifThere(jobStatus, ({ jobIteration, lastExecution }) => ({
      JobIteration: { Index: unlessEmpty(jobIteration?.index ?? 0) },
      LastExecution: ifThere(lastExecution, timeText),
    })),
  };
}
