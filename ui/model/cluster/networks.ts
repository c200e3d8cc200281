/** A network that a reader wants: its fields as texts, its spec, and what creating or removing one means. */
import {
  Annotations,
  Driver,
  IPAMConfig,
  IPAMOptions,
  NetworkSpec,
  type Network,
  type Service,
  type ServiceSpec,
  type Task,
} from "../../../proto/gen/cluster.ts";
import { serviceName } from "./services.ts";
import { formOf } from "./spec-form.ts";
import { isEnded } from "./tasks.ts";

export interface NetworkForm {
  readonly name: string;
  readonly driver: string;
  /** CIDR; empty: from the cluster's address pool. */
  readonly subnet: string;
  /** Empty: the subnet's first address. */
  readonly gateway: string;
  readonly attachable: boolean;
  readonly internal: boolean;
  readonly encrypted: boolean;
}

export type NetworkErrors = { readonly [Field in keyof NetworkForm]?: string };

export const emptyNetwork: NetworkForm = {
  name: "",
  driver: "overlay",
  subnet: "",
  gateway: "",
  attachable: false,
  internal: false,
  encrypted: false,
};

/** The label of networks that every node has by default; they cannot be removed. */
const predefinedLabel = "com.docker.swarm.predefined";

export const networkName = ({ id, spec }: Pick<Network, "id" | "spec">): string => spec?.annotations?.name || id;

/** Errors that the page can find; the server checks everything. Empty: none. */
export function networkErrors(form: NetworkForm, known: Iterable<Network>): NetworkErrors {
  const errors: { -readonly [Field in keyof NetworkErrors]: string } = {};
  // The server's rule for names that are looked up by DNS.
  if (!/^[A-Za-z0-9](?:[-_A-Za-z0-9]*[A-Za-z0-9])?$/.test(form.name) || form.name.length > 63)
    errors.name = "expected up to 63 letters, digits, and - _ between them";
  else if ([...known].some((network) => networkName(network) === form.name))
    errors.name = `there is a network ${form.name} already`;
  if (form.driver.trim() === "") errors.driver = "the driver is missing, such as overlay";
  if (form.subnet !== "" && !/^[\da-fA-F.:]+\/\d{1,3}$/.test(form.subnet.trim()))
    errors.subnet = "expected a range such as 10.1.0.0/16";
  if (form.gateway !== "" && !/^[\da-fA-F.:]+$/.test(form.gateway.trim()))
    errors.gateway = "expected an address such as 10.1.0.1";
  else if (form.gateway !== "" && form.subnet === "") errors.gateway = "a gateway needs a subnet";
  return errors;
}

/** The fields must have no errors. The same spec as that of `muster network create`. */
export function networkSpecOf(form: NetworkForm): NetworkSpec {
  const subnet = form.subnet.trim();
  return NetworkSpec.create({
    annotations: Annotations.create({ name: form.name }),
    driverConfig: Driver.create({
      name: form.driver.trim(),
      ...(form.encrypted ? { options: { encrypted: "" } } : {}),
    }),
    ipam: IPAMOptions.create({
      driver: Driver.create({ name: "default" }),
      configs: subnet === "" ? [] : [IPAMConfig.create({ subnet, range: "", gateway: form.gateway.trim() })],
    }),
    attachable: form.attachable,
    internal: form.internal,
    ingress: false,
    ipv6Enabled: false,
  });
}

/** Consequences of the creation, a sentence each. */
export function creationEffects(form: NetworkForm): readonly string[] {
  return [
    form.subnet === ""
      ? "A subnet is taken from the cluster's address pool."
      : `Addresses come from ${form.subnet.trim()}; the server refuses it if it overlaps another network.`,
    "No task changes: services use the network once they are attached to it.",
    form.internal ? "Tasks reach nothing outside of it." : "",
    form.attachable ? "Standalone containers may attach to it." : "",
    form.encrypted ? "Its traffic between nodes is encrypted." : "",
  ].filter(Boolean);
}

interface Removal {
  /** False: the server would certainly refuse it. */
  readonly isPossible: boolean;
  readonly text: string;
}

/** Consequences of the removal, or why it is not possible. The server decides about services that may yet be rolled back. */
export function removalOf(network: Network, services: Iterable<Service>, tasks: Iterable<Task>): Removal {
  const name = networkName(network);
  if (network.spec?.annotations?.labels[predefinedLabel] !== undefined)
    return { isPossible: false, text: `${name} exists on every node by default and cannot be removed.` };
  const all = [...services];
  const refersTo = (spec: ServiceSpec | null): boolean =>
    spec !== null && formOf(spec).networks.some((target) => target === network.id || target === name);
  const users = all.filter(({ spec }) => refersTo(spec));
  if (users.length > 0) {
    const them = users.length === 1 ? "it" : "them";
    return { isPossible: false, text: `${name} is in use by ${namesOf(users)}: update or remove ${them} first.` };
  }
  const attached = [...tasks].filter(
    (task) => !isEnded(task) && task.networks.some((each) => each.network?.id === network.id),
  ).length;
  if (attached > 0) {
    const [who, when] = attached === 1 ? ["1 task is", "it has"] : [`${attached} tasks are`, "they have"];
    return { isPossible: false, text: `${who} still attached to ${name}: it can be removed when ${when} stopped.` };
  }
  const subnets = (network.ipam?.configs ?? []).map(({ subnet }) => subnet).filter(Boolean);
  const former = all.filter(({ previousSpec }) => refersTo(previousSpec));
  const texts = [
    `No task uses ${name}.`,
    subnets.length === 0 ? "" : `${subnets.join(", ")} can be used again.`,
    former.length === 0
      ? ""
      : `The previous spec of ${namesOf(former)} uses it: rolling back to that will not be possible.`,
    network.spec?.ingress === true ? "Published ports need it." : "",
    "It cannot be restored from here.",
  ];
  return { isPossible: true, text: texts.filter(Boolean).join(" ") };
}

const namesOf = (services: readonly Service[]): string => services.map(serviceName).toSorted().join(", ");
