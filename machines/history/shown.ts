/** For each kind of object, the fields whose changes are shown, as plain JSON. */
import {
  ClusterSpec,
  ConfigSpec,
  ExecSpec,
  HealthCheck,
  IssuanceStatus_State,
  NetworkSpec,
  NodeRole,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus_State,
  SecretSpec,
  ServiceSpec,
  TaskState,
  VolumePublishStatus_State,
  VolumeSpec,
  type Cluster,
  type Node,
  type Service,
  type Task,
  type Volume,
} from "../../proto/gen/messages.ts";
import { isDriverSpec } from "../driver/spec.ts";
import { healthOf } from "../driver/health-spec.ts";
import type { ToldKind, ToldObjects } from "./objects.ts";

export type Plain = string | number | boolean | null | undefined | readonly Plain[] | { readonly [key: string]: Plain };

function enumName(values: Readonly<Record<string, number>>, value: number | undefined): string {
  const found = Object.entries(values).find(([, each]) => each === value);
  return (found?.[0] ?? String(value ?? 0)).toLowerCase().replaceAll("_", " ");
}

function stateWord(state: number | undefined): string {
  return enumName(TaskState, state);
}

function node({ spec, status, description, certificate, role }: Node): Plain {
  return {
    ...(spec === null ? {} : (NodeSpec.toJson(spec) as { readonly [key: string]: Plain })),
    membership: undefined,
    // Shown even if they have their default values.
    availability: enumName(NodeSpec_Availability, spec?.availability),
    desiredRole: enumName(NodeRole, spec?.desiredRole),
    state: enumName(NodeStatus_State, status?.state),
    message: status?.message || undefined,
    address: status?.addr || undefined,
    observedRole: enumName(NodeRole, role),
    hostname: description?.hostname || undefined,
    engineVersion: description?.engine?.engineVersion || undefined,
    cpus: description?.resources?.nanoCpus || undefined,
    memory: description?.resources?.memoryBytes || undefined,
    certificate: certificate?.status === undefined ? undefined : certificateState(certificate.status?.state),
  };
}

function certificateState(state: number | undefined): string {
  return enumName(IssuanceStatus_State, state);
}

function task({ status, desiredState, nodeId }: Task): Plain {
  return {
    state: stateWord(status?.state),
    desiredState: stateWord(desiredState),
    nodeId: nodeId || undefined,
    message: status?.message || undefined,
    error: status?.err || undefined,
    exitCode: status?.container?.exitCode || undefined,
  };
}

function cluster({ spec, rootCa, unlockKeys, networkBootstrapKeys, blacklistedCertificates }: Cluster): Plain {
  const bytes = (data: Uint8Array): string => data.join(",");
  return {
    ...(spec === null ? {} : (ClusterSpec.toJson(spec) as { readonly [key: string]: Plain })),
    caCertificate: rootCa?.caCertHash || undefined,
    rootRotation: rootCa?.rootRotation == null ? undefined : "under way",
    // Hidden because of their names; included only for comparison.
    workerToken: { token: rootCa?.joinTokens?.worker },
    managerToken: { token: rootCa?.joinTokens?.manager },
    unlockKeys: unlockKeys.length === 0 ? undefined : unlockKeys.map(({ key }) => bytes(key)),
    networkBootstrapKeys:
      networkBootstrapKeys.length === 0 ? undefined : networkBootstrapKeys.map(({ key }) => bytes(key)),
    refusedCertificates: Object.keys(blacklistedCertificates),
  };
}

function volume({ spec, publishStatus, volumeInfo, pendingDelete }: Volume): Plain {
  return {
    ...(spec === null ? {} : (VolumeSpec.toJson(spec) as { readonly [key: string]: Plain })),
    volumeId: volumeInfo?.volumeId || undefined,
    removal: pendingDelete ? "wanted" : undefined,
    published: publishStatus.map(({ nodeId, state }) => `${nodeId}=${enumName(VolumePublishStatus_State, state)}`),
  };
}

function service({ spec }: Service): Plain {
  if (spec === null) return null;
  const plain = ServiceSpec.toJson(spec) as { readonly [key: string]: Plain };
  const counted = spec.replicated === null ? plain : { ...plain, replicated: { replicas: spec.replicated.replicas } };
  const { kind = "", payload = null } = spec.task?.generic ?? {};
  const exec = kind === "exec" && payload !== null && !isDriverSpec(payload.type_url) ? execOf(payload.value) : null;
  const check = healthOf(spec.task);
  const task = {
    ...(plain["task"] as { readonly [key: string]: Plain } | undefined),
    ...(exec === null ? {} : { generic: { kind }, exec }),
    ...(check === null ? {} : { health: HealthCheck.toJson(check) as Plain }),
  };
  return { ...counted, task };
}

/** The contents of our own driver's payload; null for any other. */
function execOf(payload: Uint8Array): Plain {
  try {
    // Its health check is shown as for every driver.
    return ExecSpec.toJson(ExecSpec.patch(ExecSpec.decode(payload), { health: null })) as Plain;
  } catch {
    return null;
  }
}

export function shownOf<Kind extends ToldKind>(kind: Kind, object: ToldObjects[Kind]): Plain {
  const of = object as ToldObjects[ToldKind];
  switch (kind) {
    case "node":
      return node(of as Node);
    case "task":
      return task(of as Task);
    case "cluster":
      return cluster(of as Cluster);
    case "volume":
      return volume(of as Volume);
    case "service":
      return service(of as Service);
    case "network":
      return json(NetworkSpec, (of as ToldObjects["network"]).spec);
    case "secret":
      return json(SecretSpec, (of as ToldObjects["secret"]).spec);
    case "config":
      return json(ConfigSpec, (of as ToldObjects["config"]).spec);
    default:
      return null;
  }
}

function json<T>(codec: { toJson(message: T): Record<string, unknown> }, message: T | null): Plain {
  return message === null ? null : (codec.toJson(message) as { readonly [key: string]: Plain });
}
