/**
 * A service's spec as the fields of a form, and back: of an existing spec, only changed fields are replaced, so everything that the
 * form does not show stays unchanged.
 */
import {
  Annotations,
  Any,
  ContainerSpec,
  Duration,
  EndpointSpec,
  ExecSpec,
  GenericRuntimeSpec,
  GlobalService,
  Placement,
  PortConfig,
  PortConfig_PublishMode,
  PortConfig_Protocol,
  ReplicatedJob,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  NetworkAttachmentConfig,
} from "../../../proto/gen/cluster.ts";
import { replicasOf } from "./services.ts";

/** Texts as a reader edits them. */
export interface ServiceForm {
  readonly name: string;
  /** `other`: a driver plugin's payload, which only the driver can read. */
  readonly runtime: "container" | "exec" | "other";
  readonly mode: "replicated" | "global" | "job";
  readonly replicas: string;
  /** Image, or command of a process. */
  readonly image: string;
  /** Arguments, one per line. */
  readonly args: string;
  /** `NAME=value`, one per line. */
  readonly env: string;
  /** `PUBLISHED:TARGET[/PROTOCOL]`, one per line. */
  readonly ports: string;
  /** Ids of networks. */
  readonly networks: readonly string[];
  readonly parallelism: string;
  /** Seconds. */
  readonly delay: string;
  readonly monitor: string;
  readonly order: "stop-first" | "start-first";
  readonly failureAction: "pause" | "continue" | "rollback";
  readonly maxFailureRatio: string;
}

export type FormErrors = { readonly [Field in keyof ServiceForm]?: string };

const execType = "type.googleapis.com/muster.v1.ExecSpec";
const failureActions = {
  pause: UpdateConfig_FailureAction.PAUSE,
  continue: UpdateConfig_FailureAction.CONTINUE,
  rollback: UpdateConfig_FailureAction.ROLLBACK,
} as const;
const orders = {
  "stop-first": UpdateConfig_UpdateOrder.STOP_FIRST,
  "start-first": UpdateConfig_UpdateOrder.START_FIRST,
} as const;
const protocols = {
  tcp: PortConfig_Protocol.TCP,
  udp: PortConfig_Protocol.UDP,
  sctp: PortConfig_Protocol.SCTP,
} as const;
const portMax = 65_535;

function keyOf<Key extends string>(table: Readonly<Record<Key, number>>, value: number): Key {
  const keys = Object.keys(table) as Key[];
  return keys.find((key) => table[key] === value) ?? (keys[0] as Key);
}

const secondsText = (duration: Duration | null): string =>
  duration === null ? "" : String(duration.seconds + duration.nanos / 1e9);

/** SwarmKit's defaults of an update whose settings are absent: one task at a time. */
const updateDefaults = { parallelism: 1, monitorSeconds: 5 };

function execOf(task: TaskSpec | null): ExecSpec | null {
  const generic = task?.generic ?? null;
  if (generic?.kind !== "exec" || generic.payload?.type_url !== execType) return null;
  try {
    return ExecSpec.decode(generic.payload.value);
  } catch {
    return null;
  }
}

function networksOf({ networks, task }: ServiceSpec): readonly NetworkAttachmentConfig[] {
  const own = task?.networks ?? [];
  return own.length > 0 ? own : networks;
}

const portText = ({ protocol, publishedPort, targetPort }: PortConfig): string =>
  `${publishedPort}:${targetPort}${protocol === PortConfig_Protocol.TCP ? "" : `/${keyOf(protocols, protocol)}`}`;

export function formOf(spec: ServiceSpec): ServiceForm {
  const { task, update } = spec;
  const exec = execOf(task);
  const container = task?.container ?? null;
  return {
    name: spec.annotations?.name ?? "",
    runtime: exec !== null ? "exec" : task?.generic == null ? "container" : "other",
    mode:
      spec.global !== null ? "global" : spec.globalJob !== null || spec.replicatedJob !== null ? "job" : "replicated",
    replicas: String(replicasOf({ spec }) ?? ""),
    image: exec?.command ?? container?.image ?? "",
    args: (exec?.args ?? container?.args ?? []).join("\n"),
    env: (exec?.env ?? container?.env ?? []).join("\n"),
    ports: (spec.endpoint?.ports ?? []).map(portText).join("\n"),
    networks: networksOf(spec).map(({ target }) => target),
    parallelism: String(update?.parallelism ?? updateDefaults.parallelism),
    delay: secondsText(update?.delay ?? null) || "0",
    monitor: secondsText(update?.monitor ?? null) || String(updateDefaults.monitorSeconds),
    order: keyOf(orders, update?.order ?? UpdateConfig_UpdateOrder.STOP_FIRST),
    failureAction: keyOf(failureActions, update?.failureAction ?? UpdateConfig_FailureAction.PAUSE),
    maxFailureRatio: String(Math.round((update?.maxFailureRatio ?? 0) * 1e4) / 1e4),
  };
}

/** As `muster service create` writes it: messages that Docker's client writes empty are there. */
export function emptySpec(runtime: "container" | "exec"): ServiceSpec {
  return ServiceSpec.create({
    annotations: Annotations.create({}),
    task: TaskSpec.create({
      ...(runtime === "container"
        ? { container: ContainerSpec.create({}) }
        : { generic: execRuntime(ExecSpec.create({})) }),
      resources: ResourceRequirements.create({
        limits: Resources.create({}),
        reservations: Resources.create({}),
      }),
      placement: Placement.create({}),
    }),
    replicated: ReplicatedService.create({ replicas: 1 }),
    endpoint: EndpointSpec.create({}),
  });
}

const execRuntime = (spec: ExecSpec): GenericRuntimeSpec =>
  GenericRuntimeSpec.create({
    kind: "exec",
    payload: Any.create({ type_url: execType, value: ExecSpec.encode(spec) }),
  });

const lines = (text: string): readonly string[] => text.split("\n").filter((line) => line.trim() !== "");

/** Undefined: it is not a number within the bounds. */
function numberOf(text: string, { least = 0, most = Infinity, whole = false } = {}): number | undefined {
  const value = text.trim() === "" ? Number.NaN : Number(text);
  return Number.isNaN(value) || value < least || value > most || (whole && !Number.isInteger(value))
    ? undefined
    : value;
}

function portOf(line: string, before: readonly PortConfig[]): PortConfig | null {
  const same = before.find((port) => portText(port) === line.trim());
  if (same !== undefined) return same;
  const [, published = "", target = "", protocol = "tcp"] =
    /^(\d{1,5}):(\d{1,5})(?:\/(tcp|udp|sctp))?$/.exec(line.trim()) ?? [];
  const [publishedPort, targetPort] = [Number(published), Number(target)];
  if (targetPort < 1 || targetPort > portMax || publishedPort > portMax) return null;
  return PortConfig.create({
    protocol: protocols[protocol as keyof typeof protocols],
    publishedPort,
    targetPort,
    publishMode: PortConfig_PublishMode.INGRESS,
  });
}

/** Errors by field; empty: all fields are valid. */
export function formErrors(form: ServiceForm): FormErrors {
  const isContainer = form.runtime === "container";
  const errors: { -readonly [Field in keyof FormErrors]: string } = {};
  const seconds = "expected a number of seconds, from 0";
  const whole = "expected a whole number, from 0";
  if (!/^[A-Za-z0-9](?:[-_.A-Za-z0-9]*[A-Za-z0-9])?$/.test(form.name))
    errors.name = "expected letters, digits, and - _ . between them";
  if (form.runtime !== "other" && form.image.trim() === "")
    errors.image = isContainer
      ? "the image is missing, such as nginx:1.27"
      : "the command is missing, such as /bin/cat";
  if (form.mode !== "global" && form.replicas !== "" && numberOf(form.replicas, { whole: true }) === undefined)
    errors.replicas = whole;
  if (form.mode === "replicated" && form.replicas.trim() === "") errors.replicas = whole;
  const badVariable = lines(form.env).find(
    (line) => !/^[^=\s]+=/.test(line) && !(isContainer && /^[^=\s]+$/.test(line)),
  );
  if (badVariable !== undefined) errors.env = `expected NAME=value instead of "${badVariable}"`;
  const badPort = lines(form.ports).find((line) => portOf(line, []) === null);
  if (badPort !== undefined)
    errors.ports = `expected PUBLISHED:TARGET, such as 8080:80 or 53:53/udp, instead of "${badPort}"`;
  if (numberOf(form.parallelism, { whole: true }) === undefined) errors.parallelism = `${whole}; 0 updates all at once`;
  if (numberOf(form.delay) === undefined) errors.delay = seconds;
  if (numberOf(form.monitor) === undefined) errors.monitor = seconds;
  if (numberOf(form.maxFailureRatio, { most: 1 }) === undefined)
    errors.maxFailureRatio = "expected a number from 0 to 1";
  return errors;
}

function duration(text: string): Duration {
  const value = Number(text);
  const seconds = Math.floor(value);
  return Duration.create({ seconds, nanos: Math.round((value - seconds) * 1e9) });
}

/** The fields must have no errors. */
export function specWith(base: ServiceSpec, form: ServiceForm): ServiceSpec {
  const before = formOf(base);
  const isChanged = (...fields: readonly (keyof ServiceForm)[]): boolean =>
    fields.some((field) => String(form[field]) !== String(before[field]));
  let spec = base;
  const patch = (fields: Partial<ServiceSpec>): void => void (spec = ServiceSpec.patch(spec, fields));
  const patchTask = (fields: Partial<TaskSpec>): void =>
    patch({ task: TaskSpec.patch(spec.task ?? TaskSpec.create({}), fields) });

  if (isChanged("name"))
    patch({ annotations: Annotations.patch(base.annotations ?? Annotations.create({}), { name: form.name.trim() }) });
  if (isChanged("image", "args", "env")) {
    const exec = execOf(base.task);
    const fields = {
      args: isChanged("args") ? lines(form.args) : ((exec ?? base.task?.container)?.args ?? []),
      env: isChanged("env") ? lines(form.env) : ((exec ?? base.task?.container)?.env ?? []),
    };
    const image = form.image.trim();
    if (exec !== null) patchTask({ generic: execRuntime(ExecSpec.patch(exec, { ...fields, command: image })) });
    else if (form.runtime === "container")
      patchTask({
        container: ContainerSpec.patch(base.task?.container ?? ContainerSpec.create({}), { ...fields, image }),
      });
  }
  if (isChanged("mode")) {
    const isGlobal = form.mode === "global";
    patch({
      global: isGlobal ? GlobalService.create({}) : null,
      replicated: isGlobal ? null : ReplicatedService.create({ replicas: Number(form.replicas) }),
    });
  } else if (isChanged("replicas")) patch(scaledTo(spec, Number(form.replicas)));
  if (isChanged("ports")) {
    const { endpoint } = base;
    const ports = lines(form.ports).flatMap((line) => portOf(line, endpoint?.ports ?? []) ?? []);
    patch({ endpoint: EndpointSpec.patch(endpoint ?? EndpointSpec.create({}), { ports }) });
  }
  if (isChanged("networks")) {
    const known = new Map(networksOf(base).map((each) => [each.target, each]));
    const networks = form.networks.map((target) => known.get(target) ?? NetworkAttachmentConfig.create({ target }));
    patchTask({ networks });
    patch({ networks: [] });
  }
  if (isChanged("parallelism", "delay", "monitor", "order", "failureAction", "maxFailureRatio"))
    patch({
      update: UpdateConfig.patch(base.update ?? UpdateConfig.create({}), {
        parallelism: Number(form.parallelism),
        delay: duration(form.delay),
        monitor: duration(form.monitor),
        order: orders[form.order],
        failureAction: failureActions[form.failureAction],
        maxFailureRatio: Number(form.maxFailureRatio),
      }),
    });
  return spec;
}

/** The fields of a spec with another number of replicas, or completions of a job. */
export function scaledTo(spec: ServiceSpec, count: number): Partial<ServiceSpec> {
  if (spec.replicatedJob !== null)
    return { replicatedJob: ReplicatedJob.patch(spec.replicatedJob, { totalCompletions: count }) };
  return { replicated: ReplicatedService.create({ replicas: count }) };
}

/** The form as a reader changed it, on a spec that has changed since: only the reader's changes. */
export function rebased(form: ServiceForm, base: ServiceSpec, now: ServiceSpec): ServiceForm {
  const before = formOf(base);
  const changes = (Object.keys(form) as (keyof ServiceForm)[]).filter(
    (field) => String(form[field]) !== String(before[field]),
  );
  return { ...formOf(now), ...Object.fromEntries(changes.map((field) => [field, form[field]])) };
}
