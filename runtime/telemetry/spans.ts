/**
 * All spans of Muster and their attributes: the only names with which code starts spans (`actors/tracing.ts`), and the table in
 * docs/observability.md (`npm run reference`).
 *
 * SP1: a span's name has low cardinality and says `<noun> <event>`; ids are attributes.
 */

/** `number`: a whole number. */
type AttributeType = "string" | "number";

interface AttributeDeclaration {
  readonly type: AttributeType;
  /** Its value; with the unit of a number. */
  readonly means: string;
}

export const spanAttributes = {
  "muster.bytes": { type: "number", means: "bytes of task output, with each line's source and time" },
  "muster.changes": { type: "number", means: "number of changed objects" },
  "muster.cluster.id": { type: "string", means: "id of the cluster" },
  "muster.config.id": { type: "string", means: "id of the config" },
  "muster.extension.id": { type: "string", means: "id of the extension" },
  "muster.manager": { type: "string", means: "id of the manager" },
  "muster.network.id": { type: "string", means: "id of the network" },
  "muster.node.id": { type: "string", means: "id of the node" },
  "muster.proposals": { type: "number", means: "number of proposals in one record of the log" },
  "muster.resource.id": { type: "string", means: "id of the resource" },
  "muster.secret.id": { type: "string", means: "id of the secret" },
  "muster.service.id": { type: "string", means: "id of the service" },
  "muster.task.id": { type: "string", means: "id of the task" },
  "muster.task.state": { type: "number", means: "reported state, as a number of SwarmKit's TaskState" },
  "muster.update.state": {
    type: "number",
    means: "state of the update, as a number of SwarmKit's UpdateStatus.UpdateState",
  },
  "muster.tasks": { type: "number", means: "number of tasks" },
  "muster.volume.id": { type: "string", means: "id of the volume" },
  "rpc.grpc.status_code": { type: "number", means: "gRPC status of a call that failed" },
} as const satisfies Readonly<Record<string, AttributeDeclaration>>;

export type AttributeName = keyof typeof spanAttributes;

/** OpenTelemetry's kinds of spans that occur here. */
type Kind = "client" | "server" | "internal";

interface SpanFields<Attribute extends AttributeName> {
  readonly name: string;
  readonly kind: Kind;
  /** The process that records it. */
  readonly process: "command" | "manager" | "leader" | "agent";
  /** The span that it continues. */
  readonly parent: string;
  /** From its start to its end. */
  readonly means: string;
  readonly attributes: readonly Attribute[];
  /** The spans to which it has links; absent: none. */
  readonly links?: string;
}

/** One kind of span. */
export class SpanDeclaration<Attribute extends AttributeName = AttributeName> implements SpanFields<Attribute> {
  readonly name: string;
  readonly kind: Kind;
  readonly process: SpanFields<Attribute>["process"];
  readonly parent: string;
  readonly means: string;
  readonly attributes: readonly Attribute[];
  readonly links: string;

  constructor(fields: SpanFields<Attribute>) {
    this.name = fields.name;
    this.kind = fields.kind;
    this.process = fields.process;
    this.parent = fields.parent;
    this.means = fields.means;
    this.attributes = fields.attributes;
    this.links = fields.links ?? "";
  }
}

/** Values of some of these attributes. */
export type AttributesOf<Attribute extends AttributeName> = {
  readonly [Name in Attribute]?: (typeof spanAttributes)[Name]["type"] extends "number" ? number : string;
};

/** A call of Control that changes an object. */
function change<Attribute extends AttributeName>(name: string, attribute: Attribute) {
  return new SpanDeclaration<Attribute | "rpc.grpc.status_code">({
    name,
    kind: "server",
    process: "manager",
    parent: "the command, or another caller's span",
    means: "the call, in the manager that received it",
    attributes: [attribute, "rpc.grpc.status_code"],
  });
}

/** By method of Control. */
export const controlSpans = {
  CreateService: change("service create", "muster.service.id"),
  UpdateService: change("service update", "muster.service.id"),
  RemoveService: change("service remove", "muster.service.id"),
  UpdateNode: change("node update", "muster.node.id"),
  RemoveNode: change("node remove", "muster.node.id"),
  RemoveTask: change("task remove", "muster.task.id"),
  UpdateCluster: change("cluster update", "muster.cluster.id"),
  CreateNetwork: change("network create", "muster.network.id"),
  RemoveNetwork: change("network remove", "muster.network.id"),
  CreateSecret: change("secret create", "muster.secret.id"),
  UpdateSecret: change("secret update", "muster.secret.id"),
  RemoveSecret: change("secret remove", "muster.secret.id"),
  CreateConfig: change("config create", "muster.config.id"),
  UpdateConfig: change("config update", "muster.config.id"),
  RemoveConfig: change("config remove", "muster.config.id"),
  CreateVolume: change("volume create", "muster.volume.id"),
  UpdateVolume: change("volume update", "muster.volume.id"),
  RemoveVolume: change("volume remove", "muster.volume.id"),
  CreateExtension: change("extension create", "muster.extension.id"),
  RemoveExtension: change("extension remove", "muster.extension.id"),
  CreateResource: change("resource create", "muster.resource.id"),
  UpdateResource: change("resource update", "muster.resource.id"),
  RemoveResource: change("resource remove", "muster.resource.id"),
} as const;

/** The span of a command has the command's words as its name. */
export const commandSpan = (words: string) =>
  new SpanDeclaration({
    name: words,
    kind: "client",
    process: "command",
    parent: "`TRACEPARENT` in its environment",
    means: "a command that changes something or reads the output of tasks, until it ends",
    attributes: ["rpc.grpc.status_code"],
  });

export const spans = {
  ledgerCommit: new SpanDeclaration({
    name: "ledger commit",
    kind: "internal",
    process: "leader",
    parent: "the span that proposes",
    means: "from the proposal's arrival at the leader to its answer",
    attributes: ["muster.manager"],
  }),
  logAppend: new SpanDeclaration({
    name: "log append",
    kind: "internal",
    process: "leader",
    parent: "the first `ledger commit` written in this record",
    links: "the other `ledger commit` spans of the record",
    means: "one append to the log, for all proposals that are written together",
    attributes: ["muster.changes", "muster.proposals"],
  }),
  rolloutDecide: new SpanDeclaration({
    name: "rollout decide",
    kind: "internal",
    process: "leader",
    parent: "the newest traced change of the service",
    means: "the start, pause, rollback or completion of an update, until it is in the log",
    attributes: ["muster.service.id", "muster.update.state"],
  }),
  tasksCreate: new SpanDeclaration({
    name: "tasks create",
    kind: "internal",
    process: "leader",
    parent: "the newest traced change of the service",
    means: "the orchestrator's decision, until its tasks are in the log",
    attributes: ["muster.service.id", "muster.tasks"],
  }),
  tasksAssign: new SpanDeclaration({
    name: "tasks assign",
    kind: "internal",
    process: "leader",
    parent: "`tasks create`",
    means: "the scheduler's decision, until the tasks' nodes are in the log",
    attributes: ["muster.service.id", "muster.tasks"],
  }),
  assignmentsSend: new SpanDeclaration({
    name: "assignments send",
    kind: "internal",
    process: "manager",
    parent: "`tasks create` of the first traced task in the message",
    means: "a message with new tasks to one node",
    attributes: ["muster.changes", "muster.node.id"],
  }),
  taskStart: new SpanDeclaration({
    name: "task start",
    kind: "internal",
    process: "agent",
    parent: "`tasks create`",
    means: "the driver's call that starts the task; the process has the span as `TRACEPARENT`",
    attributes: ["muster.node.id", "muster.service.id", "muster.task.id"],
  }),
  taskReport: new SpanDeclaration({
    name: "task report",
    kind: "internal",
    process: "manager",
    parent: "`task start`",
    means: "from the arrival of a task's state to its commit, in the manager with the node's session",
    attributes: ["muster.task.id", "muster.task.state", "rpc.grpc.status_code"],
  }),
  taskRecover: new SpanDeclaration({
    name: "task recover",
    kind: "internal",
    process: "agent",
    parent: "`task start`",
    means: "the driver's call that finds a task again after its plugin was restarted",
    attributes: ["muster.task.id", "rpc.grpc.status_code"],
  }),
  logsSubscribe: new SpanDeclaration({
    name: "logs subscribe",
    kind: "server",
    process: "manager",
    parent: "the caller's span, if it has one",
    means: "a subscription to the output of tasks, until it ends",
    attributes: ["muster.bytes"],
  }),
  logsPublish: new SpanDeclaration({
    name: "logs publish",
    kind: "server",
    process: "manager",
    parent: "`logs subscribe`",
    means: "the output of one node for a subscription, in the manager with the node's session",
    attributes: ["muster.bytes", "muster.node.id", "rpc.grpc.status_code"],
  }),
  logsRead: new SpanDeclaration({
    name: "logs read",
    kind: "internal",
    process: "agent",
    parent: "`logs subscribe`",
    means:
      "the output that a node reads for a subscription, until the subscription, the output or the node's session ends",
    attributes: ["muster.node.id", "muster.tasks"],
  }),
  policySend: new SpanDeclaration({
    name: "policy send",
    kind: "internal",
    process: "manager",
    parent: "the newest traced change of a resource",
    means: "network policy that changed, calculated for one node and sent to it",
    attributes: ["muster.node.id"],
  }),
  policyApply: new SpanDeclaration({
    name: "policy apply",
    kind: "internal",
    process: "agent",
    parent: "`policy send`",
    means: "network policy that changed, from its arrival until the node's dataplane driver has been sent all of it",
    attributes: ["muster.changes"],
  }),
} as const;

/** All, in the order of the documentation. */
export const declaredSpans: readonly SpanDeclaration[] = [
  commandSpan("the command's words"),
  ...Object.values(controlSpans),
  ...Object.values(spans),
] as readonly SpanDeclaration[];
