/** A task in Docker's API format. */
import { TaskState, type Task, type TaskSpec, type TaskStatus } from "../../proto/gen/messages.ts";
import { attachedNetworkObject } from "./network.ts";
import { portObject } from "./service.ts";
import { genericObjects, taskSpecObject } from "./task-spec.ts";
import { enumWord, head, ifThere, mapOf, timeText, unlessEmpty, unlessNone, type DockerObject } from "./values.ts";

function statusObject({ container, err, message, portStatus, state, timestamp }: TaskStatus): DockerObject {
  return {
    Timestamp: ifThere(timestamp, timeText),
    State: enumWord(TaskState, state),
    Message: unlessEmpty(message),
    Err: unlessEmpty(err),
    ContainerStatus: ifThere(container, ({ containerId, exitCode, pid }) => ({
      ContainerID: containerId,
      PID: pid,
      ExitCode: exitCode,
    })),
    PortStatus: { Ports: unlessNone((portStatus?.ports ?? []).map(portObject)) },
  };
}

/** `specOf` shows its spec. */
export function taskObject(task: Task, specOf: (spec: TaskSpec) => unknown = taskSpecObject): DockerObject {
  return {
    ...head(task),
    Name: unlessEmpty(task.annotations?.name ?? ""),
    Labels: mapOf(task.annotations?.labels),
    Spec: ifThere(task.spec, specOf) ?? {},
    ServiceID: unlessEmpty(task.serviceId),
    Slot: unlessEmpty(task.slot),
    NodeID: unlessEmpty(task.nodeId),
    Status: ifThere(task.status, statusObject) ?? { State: "new", PortStatus: {} },
    DesiredState: enumWord(TaskState, task.desiredState),
    NetworksAttachments: unlessNone(
      task.networks.map(({ addresses, network }) => ({
        Network: ifThere(network, attachedNetworkObject) ?? {},
        Addresses: unlessNone(addresses),
      })),
    ),
    GenericResources: genericObjects(task.assignedGenericResources),
    JobIteration: ifThere(task.jobIteration, ({ index }) => ({ Index: unlessEmpty(index) })),
    Volumes:
      task.volumes.length === 0
        ? null
        : task.volumes.map(({ id, source, target }) => ({ ID: id, Source: source, Target: target })),
  };
}
