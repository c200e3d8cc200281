/**
 * The plan of an import, decided before anything is done: each object of a Swarm is created, is there already, or is blocked.
 *
 * IM1: objects are taken over by name, and one that the cluster has already is left alone, so that an import can be repeated.
 * IM2: a service is blocked when something that it uses is.
 */
import type { Listed, Swarm } from "./swarm.ts";

type Json = Readonly<Record<string, unknown>>;
export type Kind = "network" | "config" | "secret" | "service";

export interface Step {
  readonly kind: Kind;
  readonly from: Listed;
  readonly does: "create" | "keep" | "block";
  /** Why it is blocked, or what differs afterwards; empty: nothing. */
  readonly remark: string;
}

/** The names of what the cluster has. */
export type Present = Readonly<Record<Kind, ReadonlySet<string>>>;

function fieldsOf(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function listOf(value: unknown): readonly Json[] {
  return Array.isArray(value) ? value.map(fieldsOf) : [];
}

function taskOf({ spec }: Listed): Json {
  return fieldsOf(spec["TaskTemplate"]);
}

/** The networks of a service, wherever its API's version put them. */
export function attachmentsOf(service: Listed): readonly Json[] {
  const ofTask = listOf(taskOf(service)["Networks"]);
  return ofTask.length > 0 ? ofTask : listOf(service.spec["Networks"]);
}

/** Kind and name of everything that a service uses. */
function usesOf(service: Listed, networkNames: ReadonlyMap<string, string>): readonly (readonly [Kind, string])[] {
  const container = fieldsOf(taskOf(service)["ContainerSpec"]);
  return [
    ...attachmentsOf(service).map(({ Target: target }): [Kind, string] => [
      "network",
      networkNames.get(String(target)) ?? String(target),
    ]),
    ...listOf(container["Configs"]).map(({ ConfigName: name }): [Kind, string] => ["config", String(name)]),
    ...listOf(container["Secrets"]).map(({ SecretName: name }): [Kind, string] => ["secret", String(name)]),
  ];
}

function isIngress({ object }: Listed): boolean {
  return object["Ingress"] === true;
}

const noValue =
  "a Swarm does not show its value: put it into a file of this name, and use --secrets, or --secrets-from-containers at an engine that " +
  "runs a task with it";

/** `values`: the secrets whose values are at hand, and where those are from. */
export function planOf(swarm: Swarm, present: Present, values: ReadonlyMap<string, string>): readonly Step[] {
  const steps: Step[] = [];
  const blocked = new Set<string>();
  const networkNames = new Map(swarm.networks.map(({ id, name }) => [id, name]));
  const decide = (kind: Kind, from: Listed, why: string, remark = ""): void => {
    const isPresent = present[kind].has(from.name); // IM1
    if (!isPresent && why !== "") blocked.add(`${kind}/${from.name}`);
    steps.push({
      kind,
      from,
      does: isPresent ? "keep" : why === "" ? "create" : "block",
      remark: isPresent ? "the cluster has one of this name" : why || remark,
    });
  };
  for (const network of swarm.networks) {
    if (isIngress(network)) continue;
    const driver = String(network.object["Driver"]);
    decide(
      "network",
      network,
      driver === "overlay" ? "" : `its driver is ${driver}: only overlay networks are taken over`,
    );
  }
  for (const config of swarm.configs) decide("config", config, "");
  for (const secret of swarm.secrets) {
    const hasValue = secret.spec["Driver"] != null || values.has(secret.name);
    decide("secret", secret, hasValue ? "" : noValue, values.get(secret.name));
  }
  for (const service of swarm.services) {
    const { Runtime: named } = taskOf(service);
    const runtime = typeof named === "string" && named !== "" ? named : "container";
    const missing = usesOf(service, networkNames).filter(([kind, name]) => blocked.has(`${kind}/${name}`)); // IM2
    const why =
      runtime !== "container"
        ? `its runtime is ${runtime}: only services of containers are taken over`
        : missing.map(([kind, name]) => `its ${kind} ${name} is blocked`).join(", ");
    decide("service", service, why);
  }
  return steps;
}

/** The spec of a service for the new cluster: ids of its own, and the ports that the Swarm has chosen. */
export function serviceSpec(
  service: Listed,
  ids: Readonly<Record<Kind, ReadonlyMap<string, string>>>,
  swarm: Swarm,
): Json {
  const task = taskOf(service);
  const container = fieldsOf(task["ContainerSpec"]);
  const networkNames = new Map(swarm.networks.map(({ id, name }) => [id, name]));
  const renamed = (kind: Kind, idField: string, nameField: string, each: Json): Json => ({
    ...each,
    [idField]: ids[kind].get(String(each[nameField])) ?? each[idField],
  });
  const networks = attachmentsOf(service).map((each) => ({
    ...each,
    Target: ids.network.get(networkNames.get(String(each["Target"])) ?? "") ?? each["Target"],
  }));
  const configs = listOf(container["Configs"]).map((each) => renamed("config", "ConfigID", "ConfigName", each));
  const secrets = listOf(container["Secrets"]).map((each) => renamed("secret", "SecretID", "SecretName", each));
  const chosen = listOf(fieldsOf(service.object["Endpoint"])["Ports"]);
  const endpoint = fieldsOf(service.spec["EndpointSpec"]);
  const ports = listOf(endpoint["Ports"]).map((port) => {
    const published = Number(port["PublishedPort"] ?? 0);
    if (published > 0 || port["PublishMode"] === "host") return port;
    const same = chosen.find(
      (each) => each["TargetPort"] === port["TargetPort"] && each["Protocol"] === port["Protocol"],
    );
    return { ...port, PublishedPort: same?.["PublishedPort"] ?? 0 };
  });
  return {
    ...service.spec,
    Networks: [],
    TaskTemplate: {
      ...task,
      Networks: networks,
      ContainerSpec: {
        ...container,
        ...(configs.length > 0 ? { Configs: configs } : {}),
        ...(secrets.length > 0 ? { Secrets: secrets } : {}),
      },
    },
    ...(ports.length > 0 ? { EndpointSpec: { ...endpoint, Ports: ports } } : {}),
  };
}

/** Options that a Swarm's own allocator added. */
const allocated = new Set(["com.docker.network.driver.overlay.vxlanid_list"]);

export function networkSpec({ object }: Listed): Json {
  const options = Object.entries(fieldsOf(object["Options"])).filter(([name]) => !allocated.has(name));
  return { ...object, Options: Object.fromEntries(options) };
}
