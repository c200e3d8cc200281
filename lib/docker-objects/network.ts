/** A network in Docker's API format: as a cluster object, within a task, and as in `docker network inspect`. */
import type { IPAMOptions, Network } from "../../proto/gen/messages.ts";
import { driverObject, head, ifThere, mapOf, timeText, unlessEmpty, unlessNone, type DockerObject } from "./values.ts";

function ipamObject({ configs, driver }: IPAMOptions): DockerObject {
  return {
    Driver: ifThere(driver, driverObject) ?? {},
    Configs: unlessNone(
      configs.map(({ gateway, range, subnet }) => ({
        Subnet: unlessEmpty(subnet),
        Range: unlessEmpty(range),
        Gateway: unlessEmpty(gateway),
      })),
    ),
  };
}

/** As attached to a task. */
export function attachedNetworkObject(network: Network): DockerObject {
  const { driverState, ipam, spec } = network;
  return {
    ...head(network),
    Spec: {
      Name: unlessEmpty(spec?.annotations?.name ?? ""),
      Labels: mapOf(spec?.annotations?.labels),
      DriverConfiguration: ifThere(spec?.driverConfig, driverObject),
      IPv6Enabled: unlessEmpty(spec?.ipv6Enabled ?? false),
      Internal: unlessEmpty(spec?.internal ?? false),
      Attachable: unlessEmpty(spec?.attachable ?? false),
      Ingress: unlessEmpty(spec?.ingress ?? false),
      IPAMOptions: ifThere(spec?.ipam, ipamObject),
      ConfigFrom: ifThere(spec?.network, (name) => ({ Network: name })),
      Scope: "swarm",
    },
    DriverState: ifThere(driverState, driverObject) ?? {},
    IPAMOptions: ifThere(ipam, ipamObject),
  };
}

/** Null when empty, like Docker. */
function mapOrNull(of: Readonly<Record<string, string>> | undefined): ReadonlyMap<string, string> | null {
  return of === undefined || Object.keys(of).length === 0 ? null : mapOf(of);
}

/** As in Docker's `network ls` and `inspect`, where networks differ from other objects. */
export function networkObject(network: Network): DockerObject {
  const { driverState, id, ipam, meta, spec } = network;
  return {
    Name: spec?.annotations?.name ?? "",
    Id: id,
    Created: timeText(meta?.createdAt ?? null),
    Scope: "swarm",
    Driver: driverState?.name || spec?.driverConfig?.name || "",
    EnableIPv6: spec?.ipv6Enabled ?? false,
    IPAM: {
      Driver: ipam?.driver?.name || spec?.ipam?.driver?.name || "default",
      Options: mapOrNull(ipam?.driver?.options),
      Config: (ipam?.configs ?? spec?.ipam?.configs ?? []).map(({ gateway, range, subnet }) => ({
        Subnet: unlessEmpty(subnet),
        IPRange: unlessEmpty(range),
        Gateway: unlessEmpty(gateway),
      })),
    },
    Internal: spec?.internal ?? false,
    Attachable: spec?.attachable ?? false,
    Ingress: spec?.ingress ?? false,
    ConfigFrom: { Network: spec?.network ?? "" },
    ConfigOnly: false,
    Containers: null,
    Options: mapOf(driverState?.options ?? spec?.driverConfig?.options),
    Labels: mapOrNull(spec?.annotations?.labels),
  };
}
