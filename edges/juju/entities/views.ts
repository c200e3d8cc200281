/**
 * The JSON API's view of the cluster's objects, independent of the shapes, which `deltas.ts` and `status-….ts` write. Each view
 * is computed from store objects only.
 */
import {
  NodeRole,
  NodeSpec_Availability,
  NodeStatus_State,
  TaskState,
  type Cluster,
  type Network,
  type Node,
  type PortConfig,
  type Service,
  type Task,
  type Timestamp,
} from "../../../proto/gen/messages.ts";
import { controllerUuid, modelName, modelUuid } from "../model.ts";
import { jujuArchitecture } from "./architecture.ts";
import { applicationName, machineId, relationNumber, serviceNameOf, unitName } from "./names.ts";
import {
  machineWords,
  serviceLife,
  taskLife,
  unitWords,
  worstOf,
  type Life,
  type MachineWords,
  type Tally,
  type UnitWords,
  type Word,
} from "./words.ts";

export interface Port {
  readonly protocol: string;
  /** Published on the node (host mode) or on every node (ingress); the container's port if none is published. */
  readonly number: number;
}

/** Annotation with a machine's availability if it is not active; also settable. */
export const availabilityKey = "muster.availability";
export const availabilities = {
  [NodeSpec_Availability.ACTIVE]: "active",
  [NodeSpec_Availability.PAUSE]: "pause",
  [NodeSpec_Availability.DRAIN]: "drain",
} as const;
type Availability = (typeof availabilities)[NodeSpec_Availability];

type Labels = { readonly [key: string]: string };

export interface ModelView {
  readonly kind: "model";
  readonly id: string;
  readonly name: string;
  readonly controllerUuid: string;
  readonly labels: Labels;
}

export interface MachineView {
  readonly kind: "machine";
  /** The machine's number. */
  readonly id: string;
  readonly nodeId: string;
  readonly hostname: string;
  /** IP address; empty if never seen. */
  readonly address: string;
  readonly words: MachineWords;
  /** RFC 3339; empty if unknown. */
  readonly since: string;
  readonly isManager: boolean;
  /** Juju's name, such as `amd64`. */
  readonly architecture: string;
  readonly os: string;
  readonly cores: number;
  readonly memoryMib: number;
  readonly labels: Labels;
  readonly availability: Availability;
}

export interface ApplicationView {
  readonly kind: "application";
  /** The application's name in this API. */
  readonly id: string;
  readonly serviceId: string;
  /** The service's name in the cluster. */
  readonly serviceName: string;
  /** Container image, or the driver of other tasks. */
  readonly runs: string;
  readonly charmUrl: string;
  readonly isExposed: boolean;
  readonly ports: readonly Port[];
  readonly life: Life;
  /** Number of wanted units; 0 for a global service. */
  readonly scale: number;
  readonly word: Word;
  readonly since: string;
  readonly architecture: string;
  readonly cores: number;
  readonly memoryMib: number;
  readonly tags: readonly string[];
  readonly env: Labels;
  readonly labels: Labels;
}

export interface UnitView {
  readonly kind: "unit";
  /** `web/0` */
  readonly id: string;
  readonly application: string;
  readonly serviceId: string;
  /** The task that determines the unit's status. */
  readonly taskId: string;
  /** Empty until the task has a node. */
  readonly nodeId: string;
  readonly machine: string;
  readonly publicAddress: string;
  readonly privateAddress: string;
  readonly ports: readonly Port[];
  readonly words: UnitWords;
  readonly since: string;
  readonly life: Life;
  readonly runs: string;
  readonly charmUrl: string;
}

export interface RelationView {
  readonly kind: "relation";
  /** `backend:network` */
  readonly id: string;
  readonly number: number;
  /** The network's driver. */
  readonly driver: string;
  /** At least two, sorted. */
  readonly applications: readonly string[];
}

export interface AnnotationView {
  readonly kind: "annotation";
  /** Kind and id of the annotated entity. */
  readonly id: string;
  readonly subject: "machine" | "application" | "model";
  readonly subjectId: string;
  readonly labels: Labels;
}

/** State of a command in a unit, without its output, which not every user may see. */
export interface ActionView {
  readonly kind: "action";
  /** A decimal number. */
  readonly id: string;
  /** The unit's tag. */
  readonly receiver: string;
  readonly status: ActionStatus;
  readonly message: string;
  /** RFC 3339; empty: not yet. */
  readonly enqueued: string;
  readonly started: string;
  readonly completed: string;
}

export type ActionStatus = "pending" | "running" | "completed" | "failed" | "cancelled";
/** Juju's name for a shell command. */
export const actionName = "juju-exec";

export type View = ModelView | MachineView | ApplicationView | UnitView | RelationView | AnnotationView | ActionView;
export type Kind = View["kind"];

export function timeOf(timestamp: Timestamp | null | undefined): string {
  if (timestamp === null || timestamp === undefined) return "";
  const time = new Date(timestamp.seconds * 1_000 + Math.floor(timestamp.nanos / 1e6));
  return Number.isNaN(time.getTime()) ? "" : time.toISOString();
}

const protocols = ["tcp", "udp", "sctp"] as const;

function portsOf(ports: readonly PortConfig[]): readonly Port[] {
  return ports.map(({ protocol, publishedPort, targetPort }) => ({
    protocol: protocols[protocol] ?? "tcp",
    number: publishedPort === 0 ? targetPort : publishedPort,
  }));
}

export function modelView(cluster: Cluster): ModelView {
  const name = cluster.spec?.annotations?.name ?? "";
  return {
    kind: "model",
    id: modelUuid(cluster.id),
    name: name === "" ? modelName : applicationName(name),
    controllerUuid: controllerUuid(cluster.id),
    labels: cluster.spec?.annotations?.labels ?? {},
  };
}

export function machineView(node: Node): MachineView {
  const { description } = node;
  return {
    kind: "machine",
    id: machineId(node.id),
    nodeId: node.id,
    hostname: description?.hostname ?? "",
    address: node.status?.addr ?? "",
    words: machineWords(node),
    since: timeOf(node.meta?.updatedAt),
    isManager: node.role === NodeRole.MANAGER,
    architecture: jujuArchitecture(description?.platform?.architecture ?? ""),
    os: description?.platform?.os ?? "",
    cores: Math.floor((description?.resources?.nanoCpus ?? 0) / 1e9),
    memoryMib: Math.floor((description?.resources?.memoryBytes ?? 0) / 2 ** 20),
    labels: node.spec?.annotations?.labels ?? {},
    availability: availabilities[node.spec?.availability ?? NodeSpec_Availability.ACTIVE],
  };
}

function runsOf(spec: Task["spec"]): string {
  return spec?.container?.image ?? spec?.generic?.kind ?? "";
}

/** Form of a URL for a charm outside a store; the revision is the version of the spec. */
function charmUrlOf(application: string, version: number | undefined): string {
  return `local:${application}-${version ?? 0}`;
}

function environmentOf(env: readonly string[]): Labels {
  return Object.fromEntries(
    env.map((entry) => {
      const at = entry.indexOf("=");
      return at < 0 ? [entry, ""] : [entry.slice(0, at), entry.slice(at + 1)];
    }),
  );
}

const archConstraint = /^\s*node\.platform\.arch\s*==\s*(\S+)\s*$/;
const labelConstraint = /^\s*node\.labels\.([^=!\s]+)\s*(==|!=)\s*(\S+)\s*$/;

export function applicationView(service: Service, tally: Tally): ApplicationView {
  const { spec } = service;
  const serviceName = spec?.annotations?.name ?? service.id;
  const id = applicationName(serviceName);
  const scale = spec?.replicated?.replicas ?? spec?.replicatedJob?.totalCompletions ?? 0;
  const ports = portsOf(service.endpoint?.ports.length ? service.endpoint.ports : (spec?.endpoint?.ports ?? []));
  const constraints = spec?.task?.placement?.constraints ?? [];
  const reservations = spec?.task?.resources?.reservations ?? null;
  return {
    kind: "application",
    id,
    serviceId: service.id,
    serviceName,
    runs: runsOf(spec?.task ?? null),
    charmUrl: charmUrlOf(id, service.specVersion?.index),
    isExposed: ports.length > 0,
    ports,
    life: serviceLife(service),
    scale,
    word: worstOf(tally, scale),
    since: timeOf(service.meta?.updatedAt),
    architecture: jujuArchitecture(
      constraints.map((text) => archConstraint.exec(text)?.[1]).find((found) => found !== undefined) ?? "",
    ),
    cores: (reservations?.nanoCpus ?? 0) / 1e9,
    memoryMib: Math.floor((reservations?.memoryBytes ?? 0) / 2 ** 20),
    tags: constraints.flatMap((text) => {
      const [, label, operator, value] = labelConstraint.exec(text) ?? [];
      return label === undefined ? [] : [`${operator === "!=" ? "^" : ""}${label}=${value}`];
    }),
    env: environmentOf(spec?.task?.container?.env ?? []),
    labels: spec?.annotations?.labels ?? {},
  };
}

/**
 * The task that determines a unit's status: of the wanted tasks the running one, otherwise the newest; without wanted tasks,
 * the newest of all. `tasks` in order of creation; null if there are none.
 */
export function judgedTask(tasks: Iterable<Task>): Task | null {
  let wanted: Task | null = null;
  let last: Task | null = null;
  for (const task of tasks) {
    last = task;
    if (task.desiredState > TaskState.COMPLETE) continue;
    const isRunning = wanted?.status?.state === TaskState.RUNNING;
    if (!isRunning || task.status?.state === TaskState.RUNNING) wanted = task;
  }
  return wanted ?? last;
}

export function unitView(task: Task, service: Service | undefined, node: Node | undefined): UnitView {
  const application = applicationName(serviceNameOf(task, service));
  const published = task.status?.portStatus?.ports ?? [];
  const ports = [...portsOf(task.endpoint?.ports ?? []), ...portsOf(published)];
  const [address = ""] = task.networks.flatMap(({ addresses }) => addresses);
  return {
    kind: "unit",
    id: unitName(task, service),
    application,
    serviceId: task.serviceId,
    taskId: task.id,
    nodeId: task.nodeId,
    machine: task.nodeId === "" ? "" : machineId(task.nodeId),
    publicAddress: node?.status?.addr ?? "",
    privateAddress: address.split("/")[0] ?? "",
    ports,
    words: unitWords(task, node),
    since: timeOf(task.status?.timestamp),
    life: taskLife(task),
    runs: runsOf(task.spec),
    charmUrl: charmUrlOf(application, task.specVersion?.index),
  };
}

/** Null for a network with fewer than two services. */
export function relationView(network: Network, applications: readonly string[]): RelationView | null {
  if (applications.length < 2 || network.spec?.ingress === true) return null;
  return {
    kind: "relation",
    id: `${applicationName(network.spec?.annotations?.name ?? network.id)}:network`,
    number: relationNumber(network.id),
    driver: network.driverState?.name ?? network.spec?.driverConfig?.name ?? "overlay",
    applications: applications.toSorted(),
  };
}

/** Labels, and further values shown as annotations. */
export function annotationsOf(of: MachineView | ApplicationView | ModelView): Labels {
  if (of.kind === "application" && of.serviceName !== of.id) return { ...of.labels, "muster.name": of.serviceName };
  if (of.kind === "machine" && of.availability !== "active")
    return { ...of.labels, [availabilityKey]: of.availability };
  return of.labels;
}

/** Null without labels: clients get no annotation entity. */
export function annotationView(of: MachineView | ApplicationView | ModelView): AnnotationView | null {
  const labels = annotationsOf(of);
  if (Object.keys(labels).length === 0) return null;
  return { kind: "annotation", id: `${of.kind}:${of.id}`, subject: of.kind, subjectId: of.id, labels };
}

/** Whether anything that units show of their node differs. */
export function differsForUnits(old: Node | null, node: Node): boolean {
  const down = (each: Node | null): boolean => each?.status?.state === NodeStatus_State.DOWN;
  return old === null || down(old) !== down(node) || old.status?.addr !== node.status?.addr;
}
