/** Converts a Compose service to the spec that Docker's client would create. */
import {
  Annotations,
  Driver,
  EndpointSpec,
  EndpointSpec_ResolutionMode,
  NetworkAttachmentConfig,
  PortConfig,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  ServiceSpec,
  TaskSpec,
} from "../../proto/gen/messages.ts";
import { containerOf } from "./convert-container.ts";
import { modeOf, placementOf, resourcesOf, restartOf, rolloutOf } from "./convert-deploy.ts";
import type { Surroundings } from "./convert-files.ts";
import { isProcess, processOf } from "./convert-process.ts";
import { defaultNetwork, imageLabel, scoped, withStackLabel } from "./names.ts";
import type { View } from "./view.ts";

const protocols: Readonly<Record<string, PortConfig_Protocol>> = {
  tcp: PortConfig_Protocol.TCP,
  udp: PortConfig_Protocol.UDP,
  sctp: PortConfig_Protocol.SCTP,
};
const portMax = 65_535;
/** Predefined engine networks do not support aliases. */
const engineNetworks = new Set(["bridge", "host", "none"]);

function port(view: View): PortConfig {
  const text = view.text("published");
  const published = text === "" ? 0 : Number(text);
  if (!Number.isInteger(published) || published < 0 || published > portMax) {
    throw view.mistake("published", `must be a port, not '${text}'`);
  }
  const isHost = view.text("mode") === "host";
  return PortConfig.create({
    protocol: protocols[view.text("protocol")] ?? PortConfig_Protocol.TCP,
    targetPort: view.whole("target") ?? 0,
    publishedPort: published,
    publishMode: isHost ? PortConfig_PublishMode.HOST : PortConfig_PublishMode.INGRESS,
    name: view.text("name"),
  });
}

function endpoint(service: View): EndpointSpec {
  const ports = service.items("ports").map(port);
  const isRoundRobin = service.child("deploy").text("endpoint_mode") === "dnsrr";
  return EndpointSpec.create({
    mode: isRoundRobin ? EndpointSpec_ResolutionMode.DNSRR : EndpointSpec_ResolutionMode.VIP,
    ports: ports.toSorted((a, b) => a.publishedPort - b.publishedPort),
  });
}

/** The project's keys of a service's networks. Processes use only those they list, or their node's network. */
export function networkKeys(service: View): readonly string[] {
  const { keys } = service.child("networks");
  if (isProcess(service)) return keys;
  return keys.length === 0 ? [defaultNetwork] : keys;
}

/** The cluster's name of the project's network `key`; null when it is undefined. */
export function networkName(project: View, key: string, stack: string): string | null {
  const networks = project.child("networks");
  if (!networks.keys.includes(key)) return key === defaultNetwork ? scoped(stack, key) : null;
  const own = networks.child(key);
  return own.text("name") || (own.boolean("external") === true ? key : scoped(stack, key));
}

/** Sorted by name; the service's own name is an alias on each. */
function attachments(
  name: string,
  service: View,
  { project, stack, lookups }: Surroundings,
): readonly NetworkAttachmentConfig[] {
  const networks = service.child("networks");
  const named = networkKeys(service).map((key) => {
    const target = networkName(project, key, stack);
    if (target === null) throw networks.mistake(key, "is not defined in 'networks'");
    return { target, own: networks.child(key) };
  });
  return named
    .toSorted((a, b) => (a.target < b.target ? -1 : 1))
    .map(({ target, own }) =>
      NetworkAttachmentConfig.create({
        target: lookups.network(target),
        aliases: engineNetworks.has(target) ? own.texts("aliases") : [...own.texts("aliases"), name],
        driverAttachmentOpts: own.pairs("driver_opts"),
      }),
    );
}

/** `name`: the project's name. Throws UserError, with file, line and key. */
export function serviceSpecOf(name: string, service: View, around: Surroundings): ServiceSpec {
  const { stack } = around;
  const isOfProcesses = isProcess(service);
  const container = isOfProcesses ? null : containerOf(service, around);
  const deploy = service.child("deploy");
  const logging = service.child("logging");
  return ServiceSpec.create({
    annotations: Annotations.create({
      name: scoped(stack, name),
      labels: {
        ...withStackLabel(stack, deploy.pairs("labels")),
        ...(container === null ? {} : { [imageLabel]: container.image }),
      },
    }),
    task: TaskSpec.create({
      ...(container === null ? processOf(service, around) : { container }),
      resources: resourcesOf(service),
      restart: restartOf(service),
      placement: placementOf(service),
      logDriver: service.has("logging")
        ? Driver.create({ name: logging.text("driver"), options: logging.pairs("options") })
        : null,
      networks: attachments(name, service, around),
    }),
    ...modeOf(service),
    update: rolloutOf(service, "update_config"),
    rollback: rolloutOf(service, "rollback_config"),
    endpoint: endpoint(service),
  });
}
