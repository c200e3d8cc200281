/** Spans around the Control methods that write; a read of the replica would end before its span was built. */
import { controlSpans } from "../../runtime/telemetry/spans.ts";
import type { TracePorts } from "../tracing.ts";
import { traced } from "../tracing.ts";
import type { ControlHandlers } from "./handlers.ts";

interface Identified {
  readonly id: string;
}

/** The id from the request, or from the response if the request creates the object. */
function id<const Noun extends string>(
  noun: Noun,
  given: string,
  made: Identified | null | undefined = null,
): { readonly [Name in `muster.${Noun}.id`]?: string } {
  const known = given === "" ? (made?.id ?? "") : given;
  return (known === "" ? {} : { [`muster.${noun}.id`]: known }) as { readonly [Name in `muster.${Noun}.id`]?: string };
}

export function tracedControl(ports: TracePorts, handlers: ControlHandlers): ControlHandlers {
  return {
    ...handlers,
    CreateService: traced(
      ports,
      controlSpans.CreateService,
      (_, made) => id("service", "", made?.service),
      handlers.CreateService,
    ),
    UpdateService: traced(
      ports,
      controlSpans.UpdateService,
      ({ serviceId }) => id("service", serviceId),
      handlers.UpdateService,
    ),
    RemoveService: traced(
      ports,
      controlSpans.RemoveService,
      ({ serviceId }) => id("service", serviceId),
      handlers.RemoveService,
    ),
    UpdateNode: traced(ports, controlSpans.UpdateNode, ({ nodeId }) => id("node", nodeId), handlers.UpdateNode),
    RemoveNode: traced(ports, controlSpans.RemoveNode, ({ nodeId }) => id("node", nodeId), handlers.RemoveNode),
    RemoveTask: traced(ports, controlSpans.RemoveTask, ({ taskId }) => id("task", taskId), handlers.RemoveTask),
    UpdateCluster: traced(
      ports,
      controlSpans.UpdateCluster,
      ({ clusterId }) => id("cluster", clusterId),
      handlers.UpdateCluster,
    ),
    CreateNetwork: traced(
      ports,
      controlSpans.CreateNetwork,
      (_, made) => id("network", "", made?.network),
      handlers.CreateNetwork,
    ),
    RemoveNetwork: traced(
      ports,
      controlSpans.RemoveNetwork,
      ({ networkId }) => id("network", networkId),
      handlers.RemoveNetwork,
    ),
    CreateSecret: traced(
      ports,
      controlSpans.CreateSecret,
      (_, made) => id("secret", "", made?.secret),
      handlers.CreateSecret,
    ),
    UpdateSecret: traced(
      ports,
      controlSpans.UpdateSecret,
      ({ secretId }) => id("secret", secretId),
      handlers.UpdateSecret,
    ),
    RemoveSecret: traced(
      ports,
      controlSpans.RemoveSecret,
      ({ secretId }) => id("secret", secretId),
      handlers.RemoveSecret,
    ),
    CreateConfig: traced(
      ports,
      controlSpans.CreateConfig,
      (_, made) => id("config", "", made?.config),
      handlers.CreateConfig,
    ),
    UpdateConfig: traced(
      ports,
      controlSpans.UpdateConfig,
      ({ configId }) => id("config", configId),
      handlers.UpdateConfig,
    ),
    RemoveConfig: traced(
      ports,
      controlSpans.RemoveConfig,
      ({ configId }) => id("config", configId),
      handlers.RemoveConfig,
    ),
    CreateVolume: traced(
      ports,
      controlSpans.CreateVolume,
      (_, made) => id("volume", "", made?.volume),
      handlers.CreateVolume,
    ),
    UpdateVolume: traced(
      ports,
      controlSpans.UpdateVolume,
      ({ volumeId }) => id("volume", volumeId),
      handlers.UpdateVolume,
    ),
    RemoveVolume: traced(
      ports,
      controlSpans.RemoveVolume,
      ({ volumeId }) => id("volume", volumeId),
      handlers.RemoveVolume,
    ),
    CreateExtension: traced(
      ports,
      controlSpans.CreateExtension,
      (_, made) => id("extension", "", made?.extension),
      handlers.CreateExtension,
    ),
    RemoveExtension: traced(
      ports,
      controlSpans.RemoveExtension,
      ({ extensionId }) => id("extension", extensionId),
      handlers.RemoveExtension,
    ),
    CreateResource: traced(
      ports,
      controlSpans.CreateResource,
      (_, made) => id("resource", "", made?.resource),
      handlers.CreateResource,
    ),
    UpdateResource: traced(
      ports,
      controlSpans.UpdateResource,
      ({ resourceId }) => id("resource", resourceId),
      handlers.UpdateResource,
    ),
    RemoveResource: traced(
      ports,
      controlSpans.RemoveResource,
      ({ resourceId }) => id("resource", resourceId),
      handlers.RemoveResource,
    ),
  };
}
