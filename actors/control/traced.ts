/** Spans around the Control methods that write; a read of the replica would end before its span was built. */
import type { Attributes } from "@opentelemetry/api";
import type { TracePorts } from "../tracing.ts";
import { traced } from "../tracing.ts";
import type { ControlHandlers } from "./handlers.ts";

interface Identified {
  readonly id: string;
}

/** The id from the request, or from the response if the request creates the object. */
function id(noun: string, given: string, made: Identified | null | undefined = null): Attributes {
  const known = given === "" ? (made?.id ?? "") : given;
  return known === "" ? {} : { [`muster.${noun}.id`]: known };
}

export function tracedControl(ports: TracePorts, handlers: ControlHandlers): ControlHandlers {
  return {
    ...handlers,
    CreateService: traced(
      ports,
      "service create",
      (_, made) => id("service", "", made?.service),
      handlers.CreateService,
    ),
    UpdateService: traced(ports, "service update", ({ serviceId }) => id("service", serviceId), handlers.UpdateService),
    RemoveService: traced(ports, "service remove", ({ serviceId }) => id("service", serviceId), handlers.RemoveService),
    UpdateNode: traced(ports, "node update", ({ nodeId }) => id("node", nodeId), handlers.UpdateNode),
    RemoveNode: traced(ports, "node remove", ({ nodeId }) => id("node", nodeId), handlers.RemoveNode),
    RemoveTask: traced(ports, "task remove", ({ taskId }) => id("task", taskId), handlers.RemoveTask),
    UpdateCluster: traced(ports, "cluster update", ({ clusterId }) => id("cluster", clusterId), handlers.UpdateCluster),
    CreateNetwork: traced(
      ports,
      "network create",
      (_, made) => id("network", "", made?.network),
      handlers.CreateNetwork,
    ),
    RemoveNetwork: traced(ports, "network remove", ({ networkId }) => id("network", networkId), handlers.RemoveNetwork),
    CreateSecret: traced(ports, "secret create", (_, made) => id("secret", "", made?.secret), handlers.CreateSecret),
    UpdateSecret: traced(ports, "secret update", ({ secretId }) => id("secret", secretId), handlers.UpdateSecret),
    RemoveSecret: traced(ports, "secret remove", ({ secretId }) => id("secret", secretId), handlers.RemoveSecret),
    CreateConfig: traced(ports, "config create", (_, made) => id("config", "", made?.config), handlers.CreateConfig),
    UpdateConfig: traced(ports, "config update", ({ configId }) => id("config", configId), handlers.UpdateConfig),
    RemoveConfig: traced(ports, "config remove", ({ configId }) => id("config", configId), handlers.RemoveConfig),
    CreateVolume: traced(ports, "volume create", (_, made) => id("volume", "", made?.volume), handlers.CreateVolume),
    UpdateVolume: traced(ports, "volume update", ({ volumeId }) => id("volume", volumeId), handlers.UpdateVolume),
    RemoveVolume: traced(ports, "volume remove", ({ volumeId }) => id("volume", volumeId), handlers.RemoveVolume),
    CreateExtension: traced(
      ports,
      "extension create",
      (_, made) => id("extension", "", made?.extension),
      handlers.CreateExtension,
    ),
    RemoveExtension: traced(
      ports,
      "extension remove",
      ({ extensionId }) => id("extension", extensionId),
      handlers.RemoveExtension,
    ),
    CreateResource: traced(
      ports,
      "resource create",
      (_, made) => id("resource", "", made?.resource),
      handlers.CreateResource,
    ),
    UpdateResource: traced(
      ports,
      "resource update",
      ({ resourceId }) => id("resource", resourceId),
      handlers.UpdateResource,
    ),
    RemoveResource: traced(
      ports,
      "resource remove",
      ({ resourceId }) => id("resource", resourceId),
      handlers.RemoveResource,
    ),
  };
}
