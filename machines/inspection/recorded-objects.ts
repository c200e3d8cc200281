/**
 * The fields of the cluster's objects that a recording has: what the page shows and what schedules, rollouts and failures are about.
 * Left out are secrets, keys, tokens and certificates, environments, commands, payloads, labels and options, which users write, and texts
 * by nodes and their drivers, which may quote them.
 *
 * RO1: a field that is not listed here is left out, also one of a later version.
 * RO2: redacted transactions change the same objects in the same order, so they can be applied to the redacted state before them. Users
 *      are left out as a whole.
 * RO3: a text that a node may have had a part in is replaced, or cut before that part.
 */
import {
  Annotations,
  CAConfig,
  CapacityRange,
  Certificate,
  Change,
  Cluster,
  ClusterSpec,
  Config,
  ConfigReference,
  ConfigSpec,
  ContainerSpec,
  ContainerStatus,
  DiscreteGenericResource,
  DispatcherConfig,
  Driver,
  EncryptionConfig,
  Endpoint,
  Endpoint_VirtualIP,
  EndpointSpec,
  EngineDescription,
  Extension,
  Format,
  GenericResource,
  GenericRuntimeSpec,
  GlobalJob,
  GlobalService,
  IPAMConfig,
  IPAMOptions,
  IssuanceStatus,
  JobStatus,
  Kind,
  Manager,
  ManagerStatus,
  Meta,
  NamedGenericResource,
  Network,
  NetworkAttachment,
  NetworkAttachmentConfig,
  NetworkAttachmentSpec,
  NetworkSpec,
  Node,
  NodeDescription,
  NodePatch,
  NodeSpec,
  NodeStatus,
  OrchestrationConfig,
  Placement,
  Platform,
  PluginDescription,
  PortConfig,
  PortStatus,
  Removal,
  ReplicatedJob,
  ReplicatedService,
  Resource,
  ResourceReference,
  ResourceRequirements,
  Resources,
  RestartPolicy,
  Rollout,
  RootCA,
  Secret,
  SecretReference,
  SecretSpec,
  Service,
  ServiceSpec,
  Session,
  StoreObject,
  Task,
  TaskPatch,
  TaskSpec,
  TaskState,
  TaskStatus,
  Transaction,
  UpdateConfig,
  UpdateStatus,
  Volume,
  VolumeAccessMode,
  VolumeAttachment,
  VolumeInfo,
  VolumePublishStatus,
  VolumeSpec,
} from "../../proto/gen/messages.ts";
import type { TableName } from "../../proto/table-names.ts";
import { only } from "./allowed-fields.ts";

/** In place of a text that is left out. */
export const notRecorded = "(not recorded)";

/** RO3. Later states are reported by nodes. */
const byManagers = (state: number): boolean => state <= TaskState.ASSIGNED;

/** The places of rollouts' texts after which a task's error follows (`machines/orchestration/rollout/`). */
const beforeErrors = [
  /(\((?:slot|node) [^)]*\), (?!NEW|PENDING|ASSIGNED)[A-Z]+): .*$/s,
  /(due to failure or early termination of task [^:;\s]+): .*$/s,
];

/** RO3 */
function withoutErrors(text: string): string {
  let shown = text;
  for (const pattern of beforeErrors) shown = shown.replace(pattern, `$1: ${notRecorded}`);
  return shown;
}

const annotations = only(Annotations, { name: true });
/** Times and versions. */
const meta = only(Meta, { version: true, createdAt: true, updatedAt: true });
const driver = only(Driver, { name: true });

const ipam = only(IPAMOptions, {
  driver,
  configs: only(IPAMConfig, { family: true, subnet: true, range: true, gateway: true }),
});
const network = only(Network, {
  id: true,
  meta,
  spec: only(NetworkSpec, {
    annotations,
    driverConfig: driver,
    ipv6Enabled: true,
    internal: true,
    ipam,
    attachable: true,
    ingress: true,
    network: true,
  }),
  driverState: driver,
  ipam,
  pendingDelete: true,
});
const attachment = only(NetworkAttachment, { network, addresses: true });
const attachmentConfig = only(NetworkAttachmentConfig, { target: true, addresses: true });

/** Their names are chosen by users like those of services. */
const ports = only(PortConfig, {
  name: true,
  protocol: true,
  targetPort: true,
  publishedPort: true,
  publishMode: true,
});
const endpointSpec = only(EndpointSpec, { mode: true, ports });
const endpoint = only(Endpoint, {
  spec: endpointSpec,
  ports,
  virtualIps: only(Endpoint_VirtualIP, { networkId: true, addr: true }),
});

/** Such as GPUs, by the names that they have on their nodes. */
const genericResource = only(GenericResource, {
  namedResourceSpec: only(NamedGenericResource, { kind: true, value: true }),
  discreteResourceSpec: only(DiscreteGenericResource, { kind: true, value: true }),
});
const resources = only(Resources, { nanoCpus: true, memoryBytes: true, generic: genericResource });
const platform = only(Platform, { architecture: true, os: true });

/** One result for each message, so that tasks still share their spec. */
function remembered<Message extends object>(rule: (message: Message) => Message): (message: Message) => Message {
  const known = new WeakMap<Message, Message>();
  return (message) => {
    let shown = known.get(message);
    if (shown === undefined) {
      shown = rule(message);
      known.set(message, shown);
    }
    return shown;
  };
}

const taskSpecFields = only(TaskSpec, {
  container: only(ContainerSpec, {
    image: true,
    secrets: only(SecretReference, { secretId: true, secretName: true }),
    configs: only(ConfigReference, { configId: true, configName: true }),
    stopGracePeriod: true,
    tty: true,
    readOnly: true,
    init: true,
    isolation: true,
    pidsLimit: true,
  }),
  attachment: only(NetworkAttachmentSpec, { containerId: true }),
  generic: only(GenericRuntimeSpec, { kind: true }),
  resources: only(ResourceRequirements, {
    limits: resources,
    reservations: resources,
    swapBytes: true,
    memorySwappiness: true,
  }),
  restart: only(RestartPolicy, { condition: true, delay: true, maxAttempts: true, window: true }),
  placement: only(Placement, { platforms: platform, maxReplicas: true }),
  logDriver: driver,
  networks: attachmentConfig,
  forceUpdate: true,
  resourceReferences: only(ResourceReference, { resourceId: true, resourceType: true }),
});
const taskSpec = remembered(taskSpecFields);

const taskStatusFields = only(TaskStatus, {
  timestamp: true,
  state: true,
  message: true,
  err: true,
  container: only(ContainerStatus, { containerId: true, pid: true, exitCode: true }),
  portStatus: only(PortStatus, { ports }),
  appliedBy: true,
  appliedAt: true,
});

/** RO3 */
function taskStatus(status: TaskStatus): TaskStatus {
  const shown = taskStatusFields(status);
  if (byManagers(status.state)) return shown;
  return TaskStatus.patch(shown, { message: "", err: status.err === "" ? "" : notRecorded });
}

const task = only(Task, {
  id: true,
  meta,
  spec: taskSpec,
  serviceId: true,
  slot: true,
  nodeId: true,
  annotations,
  serviceAnnotations: annotations,
  status: taskStatus,
  desiredState: true,
  networks: attachment,
  endpoint,
  logDriver: driver,
  specVersion: true,
  assignedGenericResources: genericResource,
  jobIteration: true,
  volumes: only(VolumeAttachment, { id: true, source: true }),
});

const updateConfig = only(UpdateConfig, {
  parallelism: true,
  delay: true,
  failureAction: true,
  monitor: true,
  maxFailureRatio: true,
  order: true,
});
const serviceSpec = only(ServiceSpec, {
  annotations,
  task: taskSpec,
  replicated: only(ReplicatedService, { replicas: true }),
  global: only(GlobalService, {}),
  replicatedJob: only(ReplicatedJob, { maxConcurrent: true, totalCompletions: true }),
  globalJob: only(GlobalJob, {}),
  update: updateConfig,
  networks: attachmentConfig,
  endpoint: endpointSpec,
  rollback: updateConfig,
});
const service = only(Service, {
  id: true,
  meta,
  spec: serviceSpec,
  endpoint,
  updateStatus: only(UpdateStatus, { state: true, startedAt: true, completedAt: true, message: withoutErrors }),
  previousSpec: serviceSpec,
  pendingDelete: true,
  specVersion: true,
  previousSpecVersion: true,
  jobStatus: only(JobStatus, { jobIteration: true, lastExecution: true }),
});

const description = only(NodeDescription, {
  hostname: true,
  platform,
  resources,
  engine: only(EngineDescription, {
    engineVersion: true,
    plugins: only(PluginDescription, { type: true, name: true }),
  }),
  fips: true,
});
/** Written by managers. */
const nodeStatus = only(NodeStatus, { state: true, message: true, addr: true });
const certificate = only(Certificate, { role: true, status: only(IssuanceStatus, { state: true }), cn: true });
const node = only(Node, {
  id: true,
  meta,
  spec: only(NodeSpec, { annotations, desiredRole: true, membership: true, availability: true }),
  description,
  status: nodeStatus,
  managerStatus: only(ManagerStatus, { raftId: true, addr: true, leader: true, reachability: true }),
  attachment,
  certificate,
  role: true,
  attachments: attachment,
  VXLANUDPPort: true,
});

const cluster = only(Cluster, {
  id: true,
  meta,
  spec: only(ClusterSpec, {
    annotations,
    orchestration: only(OrchestrationConfig, { taskHistoryRetentionLimit: true }),
    dispatcher: only(DispatcherConfig, { heartbeatPeriod: true }),
    caConfig: only(CAConfig, { nodeCertExpiry: true, forceRotate: true }),
    encryptionConfig: only(EncryptionConfig, { autoLockManagers: true }),
  }),
  rootCa: only(RootCA, { lastForcedRotation: true }),
  fips: true,
  defaultAddressPool: true,
  subnetSize: true,
  VXLANUDPPort: true,
});

const volume = only(Volume, {
  id: true,
  meta,
  spec: only(VolumeSpec, {
    annotations,
    group: true,
    driver,
    accessMode: only(VolumeAccessMode, { scope: true, sharing: true }),
    capacityRange: only(CapacityRange, { requiredBytes: true, limitBytes: true }),
    availability: true,
  }),
  publishStatus: only(VolumePublishStatus, { nodeId: true, state: true }),
  volumeInfo: only(VolumeInfo, { capacityBytes: true, volumeId: true }),
  pendingDelete: true,
});

const rollout = only(Rollout, {
  id: true,
  meta,
  target: true,
  isRollback: true,
  startedAt: true,
  deadline: true,
  total: true,
  failures: true,
  failedTasks: true,
  step: true,
  batch: true,
  blocker: withoutErrors,
  countedSince: true,
  late: true,
  failedSlots: true,
  longestWait: true,
});

/** Null: objects of the kind are not recorded (RO2). */
const objects = {
  node,
  service,
  network,
  task,
  cluster,
  secret: only(Secret, { id: true, meta, spec: only(SecretSpec, { annotations, driver }), internal: true }),
  resource: only(Resource, { id: true, meta, annotations, kind: true }),
  extension: only(Extension, { id: true, meta, annotations }),
  config: only(Config, { id: true, meta, spec: only(ConfigSpec, { annotations }) }),
  volume,
  session: only(Session, { id: true, meta, managerId: true }),
  manager: only(Manager, { id: true, meta, addr: true, alive: true, addresses: true, level: true }),
  rollout,
  user: null,
  format: only(Format, { id: true, meta, level: true }),
} as const satisfies {
  readonly [Name in TableName]: ((object: NonNullable<StoreObject[Name]>) => NonNullable<StoreObject[Name]>) | null;
};

/** The recorded part of an object; null: it is not recorded. */
export function recordedObject<Name extends TableName>(
  table: Name,
  object: NonNullable<StoreObject[Name]>,
): NonNullable<StoreObject[Name]> | null {
  const rule = objects[table] as ((object: NonNullable<StoreObject[Name]>) => NonNullable<StoreObject[Name]>) | null;
  return rule === null ? null : rule(object);
}

const { user: _, ...recordedTables } = objects;
const change = only(Change, {
  put: only(StoreObject, recordedTables),
  remove: only(Removal, { kind: true, id: true }),
  task: only(TaskPatch, {
    id: true,
    status: taskStatus,
    desiredState: true,
    nodeId: true,
    networks: attachment,
    endpoint,
    assignedGenericResources: genericResource,
    volumes: only(VolumeAttachment, { id: true, source: true }),
  }),
  node: only(NodePatch, {
    id: true,
    status: nodeStatus,
    description,
    certificate,
    attachments: attachment,
    replaceAttachments: true,
    role: true,
    setRole: true,
  }),
  spec: true,
  status: true,
});
const transaction = only(Transaction, {
  epoch: true,
  time: true,
  writer: true,
  changes: change,
  specs: taskSpec,
  statuses: taskStatus,
});

/** The recorded part of a transaction, without its link to the record before it. */
export function recordedTransaction(whole: Transaction): Transaction {
  const isRecorded = ({ put, remove }: Change): boolean => put?.user == null && remove?.kind !== Kind.KIND_USER;
  return transaction(
    whole.changes.every(isRecorded) ? whole : Transaction.patch(whole, { changes: whole.changes.filter(isRecorded) }),
  );
}
