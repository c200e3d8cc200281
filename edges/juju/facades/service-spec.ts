/** Converts requests of Juju's clients (deploy, set, expose) to service specs. Pure. */
import {
  Annotations,
  ContainerSpec,
  EndpointSpec,
  NetworkAttachmentConfig,
  Placement,
  PortConfig,
  PortConfig_Protocol,
  ReplicatedJob,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
} from "../../../proto/gen/messages.ts";
import { RequestError } from "../request-error.ts";
import { notSupported } from "./subjects.ts";

/** Label, and option of `Set`, that lists the ports that Expose publishes: `80/tcp 8443:443/tcp`. */
const portsLabel = "muster.ports";

const protocols = {
  tcp: PortConfig_Protocol.TCP,
  udp: PortConfig_Protocol.UDP,
  sctp: PortConfig_Protocol.SCTP,
} as const;
const portPattern = /^(?:(\d{1,5}):)?(\d{1,5})(?:\/(tcp|udp|sctp))?$/;

/** `PORT`, `PUBLISHED:PORT`, each with `/tcp`, `/udp` or `/sctp`. Throws `not valid`. */
function readPorts(text: string): readonly PortConfig[] {
  return text
    .split(/[\s,]+/)
    .filter((word) => word !== "")
    .map((word) => {
      const match = portPattern.exec(word);
      const [, published, target = "0", protocol = "tcp"] = match ?? [];
      const [from, to] = [Number(published ?? target), Number(target)];
      if (match === null || from > 65_535 || to > 65_535 || to === 0) {
        throw new RequestError(`${JSON.stringify(word)} is not [PUBLISHED:]PORT[/tcp|udp|sctp]`, "not valid");
      }
      return PortConfig.create({
        targetPort: to,
        publishedPort: from,
        protocol: protocols[protocol as keyof typeof protocols],
      });
    });
}

function writePorts(ports: readonly PortConfig[]): string {
  const names = Object.keys(protocols);
  return ports
    .map(({ publishedPort, targetPort, protocol }) => {
      const from = publishedPort === 0 || publishedPort === targetPort ? "" : `${publishedPort}:`;
      return `${from}${targetPort}/${names[protocol] ?? "tcp"}`;
    })
    .join(" ");
}

/** A charm URL is the name of a container image here. */
function imageOf(charmUrl: string): string {
  if (charmUrl === "") throw new RequestError("a charm-url is required: the name of a container image", "bad request");
  if (/^(cs|ch|local):/.test(charmUrl)) {
    throw notSupported(`charms are not supported: ${charmUrl} must be a container image`);
  }
  return charmUrl.replace(/^(docker|oci|docker-image):(\/\/)?/, "");
}

/** `muster.ports` sets the ports, every other option an environment variable; null removes a variable. */
export function withConfig(spec: ServiceSpec, config: ReadonlyMap<string, unknown>): ServiceSpec {
  let changed = spec;
  const env = new Map((spec.task?.container?.env ?? []).map((entry) => [entry.split("=", 1)[0] ?? "", entry]));
  for (const [name, value] of config) {
    const text = value === null ? null : textOf(name, value);
    if (name === portsLabel) {
      readPorts(text ?? "");
      changed = withLabels(changed, new Map([[name, text ?? ""]]));
    } else if (text === null) {
      env.delete(name);
    } else {
      env.set(name, `${name}=${text}`);
    }
  }
  const container = spec.task?.container ?? null;
  const task = changed.task;
  if ([...config.keys()].every((name) => name === portsLabel)) return changed;
  if (container === null || task === null) throw notSupported("only containers have options");
  return ServiceSpec.patch(changed, {
    task: TaskSpec.patch(task, { container: ContainerSpec.patch(container, { env: [...env.values()] }) }),
  });
}

function textOf(name: string, value: unknown): string {
  if (name === "" || name.includes("="))
    throw new RequestError(`invalid option name ${JSON.stringify(name)}`, "not valid");
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  throw new RequestError(`option ${name} is not a string, number or boolean`, "bad request");
}

/** An empty value removes the label, as for Juju's annotations. */
export function withLabels(spec: ServiceSpec, labels: ReadonlyMap<string, string>): ServiceSpec {
  const annotations = spec.annotations ?? Annotations.create({});
  return ServiceSpec.patch(spec, {
    annotations: Annotations.patch(annotations, { labels: mergedLabels(annotations.labels, labels) }),
  });
}

export function mergedLabels(
  labels: Readonly<Record<string, string>>,
  changes: ReadonlyMap<string, string>,
): Readonly<Record<string, string>> {
  const merged = new Map(Object.entries(labels));
  for (const [key, value] of changes) {
    if (value === "") merged.delete(key);
    else merged.set(key, value);
  }
  return Object.fromEntries(merged);
}

/** Changes the image; the service's update settings control how its units follow. */
export function withImage(spec: ServiceSpec, charmUrl: string): ServiceSpec {
  const image = imageOf(charmUrl);
  const { task } = spec;
  const container = task?.container ?? null;
  if (task === null || container === null) throw notSupported("only containers have an image");
  return ServiceSpec.patch(spec, {
    task: TaskSpec.patch(task, { container: ContainerSpec.patch(container, { image }) }),
  });
}

/** Number of wanted units; null for a global service. */
export function scaleOf(spec: ServiceSpec): number | null {
  return spec.replicated?.replicas ?? spec.replicatedJob?.totalCompletions ?? null;
}

export function withScale(spec: ServiceSpec, scale: number): ServiceSpec {
  if (scale < 0) throw new RequestError(`the scale must not be negative: ${scale}`, "not valid");
  if (spec.replicatedJob !== null) {
    return ServiceSpec.patch(spec, {
      replicatedJob: ReplicatedJob.patch(spec.replicatedJob, { totalCompletions: scale }),
    });
  }
  if (spec.replicated === null) throw notSupported("the scale of a global application is the number of machines");
  return ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: scale }) });
}

/** Publishes the ports in the label; published ports stay published. */
export function exposed(spec: ServiceSpec): ServiceSpec {
  const endpoint = spec.endpoint ?? EndpointSpec.create({});
  if (endpoint.ports.length > 0) return spec;
  const ports = readPorts(spec.annotations?.labels[portsLabel] ?? "");
  if (ports.length === 0) {
    throw new RequestError(`no ports to publish: set option ${portsLabel}, such as "80/tcp"`, "not valid");
  }
  return ServiceSpec.patch(spec, { endpoint: EndpointSpec.patch(endpoint, { ports }) });
}

/** Unpublishes all ports, and keeps them in the label. */
export function unexposed(spec: ServiceSpec): ServiceSpec {
  const { endpoint } = spec;
  if (endpoint === null || endpoint.ports.length === 0) return spec;
  const remembered = withLabels(spec, new Map([[portsLabel, writePorts(endpoint.ports)]]));
  return ServiceSpec.patch(remembered, { endpoint: EndpointSpec.patch(endpoint, { ports: [] }) });
}

interface Wanted {
  readonly name: string;
  readonly charmUrl: string;
  readonly units: number;
  /** Id of a node; null: any node. */
  readonly nodeId: string | null;
  /** Ids of networks. */
  readonly networks: readonly string[];
}

export function newService({ name, charmUrl, units, nodeId, networks }: Wanted): ServiceSpec {
  return ServiceSpec.create({
    annotations: Annotations.create({ name }),
    task: TaskSpec.create({
      container: ContainerSpec.create({ image: imageOf(charmUrl) }),
      networks: networks.map((target) => NetworkAttachmentConfig.create({ target })),
      ...(nodeId === null ? {} : { placement: Placement.create({ constraints: [`node.id==${nodeId}`] }) }),
    }),
    replicated: ReplicatedService.create({ replicas: units }),
  });
}
