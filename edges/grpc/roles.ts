/**
 * Who may call what: one row for every method of every service, after docs/reference/swarm-worker-protocol.md §2.2, and the
 * one place that decides. A method missing here does not compile.
 *
 * R1: a handler is given an identity only if it is a current one of this cluster: its certificate was signed by our CA,
 *     names this organization and a node that was not removed. A removed node that asks for a certificate is nobody.
 * R2: what a call was admitted for lasts no longer than the reason: see `Standing`, and server.ts G3.
 */
import {
  CAService,
  ControlService,
  DataKeysService,
  DispatcherService,
  HealthService,
  LockService,
  LogBrokerService,
  LogsService,
  NodeCAService,
  OperatorService,
  NetworksService,
  PolicyService,
  RaftMembershipService,
  ResourceAllocatorService,
  TaskAccessService,
  TaskCallsService,
  UsersService,
  WatchService,
} from "../../proto/gen/messages.ts";
import type { Subscription } from "../../runtime/ports.ts";
import type { Peer } from "../../runtime/rpc.ts";

/**
 * `anyone`: also without a certificate. `worker-or-manager`, `manager`: with a certificate of that role.
 * `manager-or-local`: with a manager's, or on the control socket.
 */
export type Access = "anyone" | "worker-or-manager" | "manager" | "manager-or-local";

type Rows<Service extends { readonly methods: object }> = { readonly [Method in keyof Service["methods"]]: Access };

const ca: Rows<typeof CAService> = { GetRootCACertificate: "anyone", GetUnlockKey: "manager-or-local" };

const nodeCa: Rows<typeof NodeCAService> = { IssueNodeCertificate: "anyone", NodeCertificateStatus: "anyone" };

const dispatcher: Rows<typeof DispatcherService> = {
  Session: "worker-or-manager",
  Heartbeat: "worker-or-manager",
  UpdateTaskStatus: "worker-or-manager",
  UpdateVolumeStatus: "worker-or-manager",
  Tasks: "worker-or-manager",
  Assignments: "worker-or-manager",
};

const logBroker: Rows<typeof LogBrokerService> = {
  ListenSubscriptions: "worker-or-manager",
  PublishLogs: "worker-or-manager",
};

const taskCalls: Rows<typeof TaskCallsService> = { Listen: "worker-or-manager", Answer: "worker-or-manager" };

const policy: Rows<typeof PolicyService> = { Follow: "worker-or-manager", Report: "worker-or-manager" };

const networks: Rows<typeof NetworksService> = { Follow: "worker-or-manager" };

const resourceAllocator: Rows<typeof ResourceAllocatorService> = {
  AttachNetwork: "worker-or-manager",
  DetachNetwork: "worker-or-manager",
};

// Who holds these reads everything: no socket file, and no certificate but a manager's.
const dataKeys: Rows<typeof DataKeysService> = { GetDataKeys: "manager" };
const lock: Rows<typeof LockService> = { GetLock: "manager-or-local", Unlock: "manager-or-local" };

const raftMembership: Rows<typeof RaftMembershipService> = { Join: "manager", Leave: "manager" };
const health: Rows<typeof HealthService> = { Check: "manager-or-local" };
const logs: Rows<typeof LogsService> = { SubscribeLogs: "manager-or-local" };
const watch: Rows<typeof WatchService> = { Watch: "manager-or-local" };

/** Everything of a service for managers and the control socket alone. */
function managersOnly<Service extends { readonly methods: object }>(service: Service): Rows<Service> {
  return Object.fromEntries(
    Object.keys(service.methods).map((method) => [method, "manager-or-local"]),
  ) as Rows<Service>;
}

function byPath(service: { readonly methods: object }, rows: Readonly<Record<string, Access>>): [string, Access][] {
  return Object.entries(service.methods as Readonly<Record<string, { readonly path: string }>>).map(
    ([name, method]) => [method.path, rows[name] as Access],
  );
}

/** HTTP/2 path of every method → who may call it. */
export const accessByPath: ReadonlyMap<string, Access> = new Map([
  ...byPath(CAService, ca),
  ...byPath(NodeCAService, nodeCa),
  ...byPath(DispatcherService, dispatcher),
  ...byPath(LogBrokerService, logBroker),
  ...byPath(PolicyService, policy),
  ...byPath(NetworksService, networks),
  ...byPath(ResourceAllocatorService, resourceAllocator),
  ...byPath(DataKeysService, dataKeys),
  ...byPath(LockService, lock),
  ...byPath(RaftMembershipService, raftMembership),
  ...byPath(HealthService, health),
  ...byPath(LogsService, logs),
  ...byPath(WatchService, watch),
  ...byPath(ControlService, managersOnly(ControlService)),
  ...byPath(OperatorService, managersOnly(OperatorService)),
  ...byPath(TaskAccessService, managersOnly(TaskAccessService)),
  ...byPath(TaskCallsService, taskCalls),
  ...byPath(UsersService, managersOnly(UsersService)),
]);

/** Who is at the other end of a connection, worked out once when it is made. */
export interface Caller {
  /** With the identity of its certificate, whether or not that is still current. */
  readonly peer: Peer;
  /** The same without identity. */
  readonly anonymous: Peer;
  /** What is wrong with the certificate it showed, which no root of ours vouches for; null when nothing is. */
  readonly rejection: string | null;
  /** True when it showed a certificate of ours, of whatever role. */
  readonly isCertified: boolean;
  /** When the first certificate of the chain that it showed expires, in milliseconds since the epoch; null without one. */
  readonly notAfterMs: number | null;
}

/** What decides whether an identity is current. Asked at each call, and again when it tells of a change. */
export interface Membership {
  /** The cluster's id. */
  organization(): string;
  isRemoved(nodeId: string): boolean;
  /** Whether the node is no manager, whatever its certificate says: demoted, or not known. Nobody is when absent. */
  isDemoted?(nodeId: string): boolean;
  /** Calls back with the ids of nodes that were removed or whose role changed, in the turn in which this becomes known. */
  onChange(listener: (nodeIds: readonly string[]) => void): Subscription;
}

/** What a caller's certificate is worth at the moment: `nobody` without one, and when its node was removed. */
export type Standing = "nobody" | "worker" | "manager";

function refusal(text: string): string {
  return `Permission denied: unauthorized peer role: rpc error: code = PermissionDenied desc = ${text}`;
}

const rolesOf = {
  "worker-or-manager": ["swarm-worker", "swarm-manager"],
  manager: ["swarm-manager"],
  "manager-or-local": ["swarm-manager"],
} as const satisfies Record<Exclude<Access, "anyone">, readonly string[]>;

/** Why this caller's identity is not one of the given roles in this cluster; null when it is. */
function objection(caller: Caller, roles: readonly string[], membership: Membership): string | null {
  const identity = caller.peer.identity;
  if (!caller.isCertified) return "no client certificates in request";
  const isManager = identity?.role === "swarm-manager" && membership.isDemoted?.(identity.nodeId) !== true;
  const role = isManager ? "swarm-manager" : "swarm-worker";
  if (identity === null || !roles.includes(role))
    return `Permission denied: remote certificate not part of OUs: [${roles.join(" ")}]`;
  const organization = membership.organization();
  if (identity.organization !== organization)
    return `Permission denied: remote certificate not part of organization: ${organization}`;
  if (membership.isRemoved(identity.nodeId)) return `Permission denied: node ${identity.nodeId} was removed from swarm`;
  return null;
}

/** A connection lives as long as this stays what it was when it was made. R2 */
export function standingOf(caller: Caller, membership: Membership): Standing {
  if (caller.rejection !== null || objection(caller, rolesOf["worker-or-manager"], membership) !== null)
    return "nobody";
  return objection(caller, rolesOf.manager, membership) === null ? "manager" : "worker";
}

/** The peer to hand to the handler, or the text of the PERMISSION_DENIED that refuses the call. */
export function authorize(access: Access, caller: Caller, membership: Membership): Peer | string {
  if (caller.rejection !== null) return refusal(`client certificate not accepted: ${caller.rejection}`);
  if (caller.peer.local && (access === "manager-or-local" || access === "anyone")) return caller.peer;
  if (access === "anyone") {
    return objection(caller, rolesOf["worker-or-manager"], membership) === null ? caller.peer : caller.anonymous;
  }
  const reason = objection(caller, rolesOf[access], membership);
  return reason === null ? caller.peer : refusal(reason);
}
