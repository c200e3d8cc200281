/** `/containers`: those of the cluster's tasks, wherever they run. */
import { ControlService, ListTasksRequest, TaskState, type Task } from "../../../proto/gen/messages.ts";
import { enumWord, timeText } from "../../../lib/docker-objects/values.ts";
import { humanDuration } from "../../../lib/human-duration.ts";
import type { Store } from "../../../runtime/store/store.ts";
import { badRequest, Failure } from "../failure.ts";
import type { Filters } from "../filters.ts";
import { isSet } from "../go-text.ts";
import { filtersOf, hasOldWords, ok, writeList, type DockerRequest, type Handler } from "../request.ts";

type ContainerState = "created" | "running" | "exited" | "dead";

/** One container, or process, of a task. */
export interface TaskContainer {
  /** 64 hexadecimal digits, as of every container; derived from the task's id where the node has reported none. */
  readonly id: string;
  readonly name: string;
  readonly image: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly task: Task;
  readonly state: ContainerState;
}

/** Null for a task before its container is created, and for the attachment of an engine's own container. */
function containerState({ spec, status }: Task): ContainerState | null {
  if (spec === null || spec.attachment !== null) return null;
  const state = status?.state ?? TaskState.NEW;
  // A task that was rejected, or ended before it was prepared, has never had one.
  if (state < TaskState.READY || state === TaskState.REJECTED) return null;
  if (state < TaskState.RUNNING) return "created";
  if (state === TaskState.RUNNING) return "running";
  return state >= TaskState.ORPHANED ? "dead" : "exited";
}

interface ContainerCounts {
  readonly all: number;
  readonly running: number;
}

const counted = new WeakMap<Store, { readonly version: number; readonly counts: ContainerCounts }>();

/** Containers of the whole cluster. Clients ask for them before many commands, and rarely has anything changed. */
export function containerCounts(store: Store): ContainerCounts {
  const known = counted.get(store);
  if (known?.version === store.version) return known.counts;
  let [all, running] = [0, 0];
  for (const task of store.all("task")) {
    const state = containerState(task);
    if (state !== null) all += 1;
    if (state === "running") running += 1;
  }
  const counts = { all, running };
  counted.set(store, { version: store.version, counts });
  return counts;
}

/** A process has no container: its task's id, in the form of one. */
function idOf({ id, status }: Task): string {
  return status?.container?.containerId || Buffer.from(id.padEnd(32, "-")).toString("hex").slice(0, 64);
}

/** Null if it has none. */
export function containerOf(task: Task, store: Store): TaskContainer | null {
  const state = containerState(task);
  if (state === null || task.spec === null) return null;
  const { container, generic } = task.spec;
  const service = store.get("service", task.serviceId);
  const serviceName = service?.spec?.annotations?.name ?? task.serviceAnnotations?.name ?? "";
  const name = `${serviceName}.${task.slot === 0 ? task.nodeId : task.slot}.${task.id}`;
  const labels = {
    ...container?.labels,
    "com.docker.swarm.node.id": task.nodeId,
    "com.docker.swarm.service.id": task.serviceId,
    "com.docker.swarm.service.name": serviceName,
    "com.docker.swarm.task": "",
    "com.docker.swarm.task.id": task.id,
    "com.docker.swarm.task.name": name,
  };
  return { id: idOf(task), name, image: container?.image ?? generic?.kind ?? "", labels, task, state };
}

export function* containersOf(store: Store, tasks: Iterable<Task> = store.all("task")): Iterable<TaskContainer> {
  for (const task of tasks) {
    const container = containerOf(task, store);
    if (container !== null) yield container;
  }
}

function createdSeconds({ meta }: Task): number {
  return meta?.createdAt?.seconds ?? 0;
}

function newestFirst({ task: a }: TaskContainer, { task: b }: TaskContainer): number {
  const nanos = ({ meta }: Task): number => meta?.createdAt?.nanos ?? 0;
  return createdSeconds(b) - createdSeconds(a) || nanos(b) - nanos(a);
}

function statusText({ state, task }: TaskContainer, now: number): string {
  const since = humanDuration(Math.max(0, now - (task.status?.timestamp?.seconds ?? 0) * 1_000));
  if (state === "created") return "Created";
  if (state === "dead") return "Dead";
  return state === "running" ? `Up ${since}` : `Exited (${task.status?.container?.exitCode ?? 0}) ${since} ago`;
}

function words({ spec }: Task): readonly string[] {
  return [...(spec?.container?.command ?? []), ...(spec?.container?.args ?? [])];
}

interface PublishedPort {
  readonly IP: string;
  readonly PrivatePort: number;
  readonly PublicPort: number;
  readonly Type: string;
}

function portsOf({ status }: Task): readonly PublishedPort[] {
  return (status?.portStatus?.ports ?? []).map(({ protocol, publishedPort, targetPort }) => ({
    IP: "0.0.0.0",
    PrivatePort: targetPort,
    PublicPort: publishedPort,
    Type: ["tcp", "udp", "sctp"][protocol] ?? "tcp",
  }));
}

interface Mounted {
  readonly Type: string;
  /** Of volumes only. */
  readonly Name?: string;
  readonly Source: string;
  readonly Destination: string;
  readonly Mode: string;
  readonly RW: boolean;
  readonly Propagation: string;
}

/** As the spec has them: only the engine of a node knows where it keeps a volume, and the volumes of images. */
function mountsOf({ spec }: Task): readonly Mounted[] {
  return (spec?.container?.mounts ?? []).map(({ readonly, source, target, type }) => {
    const Type = enumWord({ bind: 0, volume: 1, tmpfs: 2, npipe: 3, cluster: 4 }, type);
    return {
      Type,
      ...(Type === "volume" ? { Name: source } : {}),
      Source: source,
      Destination: target,
      Mode: "",
      RW: !readonly,
      Propagation: "",
    };
  });
}

function networksOf({ networks }: Task): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    networks.map(({ addresses, network }) => {
      const [address = "", length = "0"] = (addresses[0] ?? "").split("/");
      return [
        network?.spec?.annotations?.name ?? "",
        {
          IPAMConfig: { IPv4Address: address },
          Links: null,
          Aliases: null,
          NetworkID: network?.id ?? "",
          EndpointID: "",
          Gateway: "",
          IPAddress: address,
          IPPrefixLen: Number(length),
          IPv6Gateway: "",
          GlobalIPv6Address: "",
          GlobalIPv6PrefixLen: 0,
          MacAddress: "",
          DriverOpts: null,
        },
      ];
    }),
  );
}

function summary(container: TaskContainer, now: number): unknown {
  const { id, image, labels, name, state, task } = container;
  return {
    Id: id,
    Names: [`/${name}`],
    Image: image,
    ImageID: "",
    Command: words(task).join(" "),
    Created: createdSeconds(task),
    Ports: portsOf(task),
    Labels: new Map(Object.entries(labels)),
    State: state,
    Status: statusText(container, now),
    HostConfig: { NetworkMode: "default" },
    NetworkSettings: { Networks: networksOf(task) },
    Mounts: mountsOf(task),
  };
}

const known = [
  "ancestor",
  "before",
  "exited",
  "expose",
  "health",
  "id",
  "is-task",
  "isolation",
  "label",
  "name",
  "network",
  "node",
  "publish",
  "since",
  "status",
  "volume",
];
/** Filters by what only the engine of a node knows. */
const unknownHere = ["expose", "health", "isolation"];

const states = ["paused", "restarting", "removing", "running", "dead", "created", "exited"];

/** Throws Failure for a value that no container can have. */
function demandValues(filters: Filters, isOld: boolean): void {
  for (const code of filters.of("exited")) {
    if (/^[+-]?\d+$/.test(code)) continue;
    const reason = `strconv.Atoi: parsing ${JSON.stringify(code)}: invalid syntax`;
    throw isOld ? new Failure(500, reason) : badRequest(`invalid filter 'exited=${code}': ${reason}`);
  }
  for (const state of filters.of("status")) if (!states.includes(state)) throw filters.invalid("status", state);
  filters.flag("is-task", false);
}

const portMax = 65_535;

/** Ports and ranges such as `80`, `80/udp` and `8000-8080/tcp`, each as `80/tcp`. Throws Failure. */
function publishedPorts(filters: Filters): ReadonlySet<string> {
  const wanted = new Set<string>();
  for (const value of filters.of("publish")) {
    if (value.includes(":")) throw new Failure(500, `filter for 'publish' should not contain ':': ${value}`);
    const [range = "", protocol = "tcp"] = value.split("/");
    const refuse = (reason: string): Failure =>
      new Failure(500, `error while looking up for publish ${value}: ${reason}`);
    if (range === "") throw refuse("Empty string specified for ports.");
    const [start = 0, end = start] = range.split("-", 2).map((text) => {
      const wrong = (why: string): Failure => refuse(`strconv.ParseUint: parsing ${JSON.stringify(text)}: ${why}`);
      if (!/^\d+$/.test(text)) throw wrong("invalid syntax");
      if (Number(text) > portMax) throw wrong("value out of range");
      return Number(text);
    });
    if (end < start) throw refuse(`Invalid range specified for the Port: ${range}`);
    for (let port = start; port <= end; port += 1) wanted.add(`${port}/${protocol.toLowerCase()}`);
  }
  return wanted;
}

function hasMount(task: Task, wanted: string): boolean {
  return mountsOf(task).some(({ Destination, Source }) => Source === wanted || Destination === wanted);
}

/** The part of a list, newest first, that is older than one container and newer than another. Throws Failure. */
function between(all: readonly TaskContainer[], filters: Filters, isOld: boolean): readonly TaskContainer[] {
  const placeOf = (name: string): number | undefined => {
    const wanted = filters.of(name).at(-1);
    if (wanted === undefined) return undefined;
    const at = all.findIndex((each) => isCalled(each, wanted.replace(/^\//, "")));
    if (at < 0) throw isOld ? new Failure(500, `no such container ${wanted}`) : noContainer(wanted);
    return at;
  };
  const [before = -1, since] = [placeOf("before"), placeOf("since")];
  return all.slice(before + 1, since);
}

function passes(
  filters: Filters,
  ports: ReadonlySet<string>,
  { id, image, labels, name, state, task }: TaskContainer,
): boolean {
  const exitCode = String(task.status?.container?.exitCode ?? 0);
  const isOn = (wanted: string): boolean =>
    task.networks.some(
      ({ network }) => network?.spec?.annotations?.name === wanted || network?.id.startsWith(wanted) === true,
    );
  return (
    (filters.matches("name", `/${name}`) || filters.matches("name", name)) &&
    filters.matchesStart("id", id) &&
    filters.matchesLabels("label", labels) &&
    filters.allows("status", state) &&
    (filters.of("ancestor").length === 0 ||
      filters
        .of("ancestor")
        .some((each) => image === each || image.startsWith(`${each}:`) || image.startsWith(`${each}@`))) &&
    (filters.of("exited").length === 0 || (state === "exited" && filters.of("exited").includes(exitCode))) &&
    (filters.of("network").length === 0 || filters.of("network").some(isOn)) &&
    filters.allows("node", task.nodeId) &&
    (ports.size === 0 || portsOf(task).some(({ PublicPort, Type }) => ports.has(`${PublicPort}/${Type}`))) &&
    (filters.of("volume").length === 0 || filters.of("volume").some((each) => hasMount(task, each))) &&
    filters.flag("is-task", false) !== false
  );
}

async function listedTasks({ calls }: Pick<DockerRequest, "calls">): Promise<readonly Task[]> {
  return (await calls.unary(ControlService.methods.ListTasks, ListTasksRequest.create({}))).tasks;
}

/** Their number, and how many of them run; `write` answers with all of them within a text. */
export async function allContainers(request: DockerRequest): Promise<{
  readonly total: number;
  readonly running: number;
  write(around: readonly [before: string, after: string]): Promise<null>;
}> {
  const all = [...containersOf(request.backend.store, await listedTasks(request))];
  const now = request.backend.clock.now();
  return {
    total: all.length,
    running: all.filter(({ state }) => state === "running").length,
    write: (around) => writeList(request, all, (container) => summary(container, now), around),
  };
}

export const listContainers: Handler = async (request) => {
  const { backend, query } = request;
  const limitText = query.get("limit") ?? "";
  if (!/^-?\d*$/.test(limitText))
    throw new Failure(500, `strconv.Atoi: parsing ${JSON.stringify(limitText)}: invalid syntax`);
  const limit = Number(limitText);
  const filters = filtersOf(request).accept(known);
  const unsupported = unknownHere.find((name) => filters.of(name).length > 0);
  if (unsupported !== undefined)
    throw new Failure(501, `the filter "${unsupported}" is known to the engine of a node only: run 'docker ps' there`);
  const isAll =
    isSet(query.get("all")) || limit > 0 || filters.of("status").length > 0 || filters.of("exited").length > 0;
  demandValues(filters, hasOldWords(request));
  const now = backend.clock.now();
  const ports = publishedPorts(filters);
  const all = [...containersOf(backend.store, await listedTasks(request))].toSorted(newestFirst);
  const found = between(all, filters, hasOldWords(request)).filter(
    (container) => (isAll || container.state === "running") && passes(filters, ports, container),
  );
  return writeList(request, limit > 0 ? found.slice(0, limit) : found, (container) => summary(container, now));
};

function noContainer(wanted: string): Failure {
  return new Failure(404, `No such container: ${wanted}`);
}

function isCalled({ id, name, task }: TaskContainer, wanted: string): boolean {
  return id === wanted || name === wanted || task.id === wanted;
}

/** By id, its beginning, or name; also by the id of the task. Rejects with Failure. */
export async function findContainer(request: DockerRequest, wanted: string): Promise<TaskContainer> {
  const plain = wanted.replace(/^\//, "");
  const found: TaskContainer[] = [];
  for (const container of containersOf(request.backend.store, await listedTasks(request))) {
    if (isCalled(container, plain)) return container;
    if (plain !== "" && container.id.startsWith(plain)) found.push(container);
  }
  if (found.length > 1) throw new Failure(400, `Multiple IDs found with provided prefix: ${plain}`);
  if (found[0] === undefined) throw noContainer(wanted);
  return found[0];
}

/** Throws Failure. */
export function runningContainer(container: TaskContainer): TaskContainer {
  if (container.state !== "running") throw new Failure(409, `Container ${container.id} is not running`);
  return container;
}

export const inspectContainer: Handler = async (request) => {
  const { id, image, labels, name, state, task } = await findContainer(request, request.name);
  const { container = null } = task.spec ?? {};
  const { status } = task;
  const [path = "", ...args] = words(task);
  const isEnded = state === "exited" || state === "dead";
  return ok({
    Id: id,
    Created: timeText(task.meta?.createdAt ?? null),
    Path: path,
    Args: args,
    State: {
      Status: state,
      Running: state === "running",
      Paused: false,
      Restarting: false,
      OOMKilled: false,
      Dead: state === "dead",
      Pid: state === "running" ? (status?.container?.pid ?? 0) : 0,
      ExitCode: status?.container?.exitCode ?? 0,
      Error: status?.err ?? "",
      StartedAt: state === "running" ? timeText(status?.timestamp ?? null) : timeText(null),
      FinishedAt: isEnded ? timeText(status?.timestamp ?? null) : timeText(null),
    },
    Image: "",
    ResolvConfPath: "",
    HostnamePath: "",
    HostsPath: "",
    LogPath: "",
    Name: `/${name}`,
    RestartCount: 0,
    Driver: "",
    Platform: "linux",
    MountLabel: "",
    ProcessLabel: "",
    AppArmorProfile: "",
    ExecIDs: null,
    HostConfig: {
      NetworkMode: "default",
      LogConfig: { Type: "json-file", Config: {} },
      RestartPolicy: { Name: "", MaximumRetryCount: 0 },
      NanoCpus: task.spec?.resources?.limits?.nanoCpus ?? 0,
      Memory: task.spec?.resources?.limits?.memoryBytes ?? 0,
    },
    GraphDriver: { Name: "", Data: null },
    Mounts: mountsOf(task),
    Config: {
      Hostname: container?.hostname ?? "",
      Domainname: "",
      User: container?.user ?? "",
      AttachStdin: false,
      AttachStdout: false,
      AttachStderr: false,
      Tty: container?.tty ?? false,
      OpenStdin: container?.openStdin ?? false,
      StdinOnce: false,
      Env: container?.env ?? [],
      Cmd: container === null || container.args.length === 0 ? null : container.args,
      Image: image,
      Volumes: null,
      WorkingDir: container?.dir ?? "",
      Entrypoint: container === null || container.command.length === 0 ? null : container.command,
      OnBuild: null,
      Labels: new Map(Object.entries(labels)),
    },
    NetworkSettings: { Bridge: "", SandboxID: "", Ports: {}, Networks: networksOf(task) },
  });
};
