/**
 * The callers of each method: one row per method of every service, following docs/reference/swarm-worker-protocol.md §2.2.
 * The only place that decides this. A missing method does not compile.
 *
 * R1: a handler gets an identity only if it is current in this cluster: the certificate was signed by our CA, and names this
 *     organization and a node that has not been removed. A removed node that requests a certificate has no identity.
 * R2: a call lasts no longer than the reason for which it was admitted: see `Standing`, and server.ts G3.
 * R3: a user's certificate permits what the user's role permits at this moment, and nothing reserved for nodes. It is valid
 *     while the user is enabled and has the password under which it was issued.
 */
import {
  BackupService,
  CAService,
  ControlService,
  DataKeysService,
  DispatcherService,
  HealthService,
  InspectionService,
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
  UserCertificatesService,
  UsersService,
  WatchService,
} from "../../proto/gen/messages.ts";
import type { Subscription } from "../../runtime/ports/index.ts";
import type { Peer } from "../../runtime/ports/rpc.ts";
import { isAtLeast, type Role } from "../../runtime/user-roles.ts";

/**
 * `anyone`: also without a certificate. `worker-or-manager`, `manager`: with a certificate of that role. `manager-or-local`:
 * with a manager's certificate, or on the control socket. `read-only`, `operator`, `admin`: as `manager-or-local`, and users
 * with that role or a higher one.
 */
export type Access = "anyone" | "worker-or-manager" | "manager" | "manager-or-local" | Role;

/** Whether it is one of the users' roles. */
export function isRole(access: Access): access is Role {
  return access === "read-only" || access === "operator" || access === "admin";
}

type Rows<Service extends { readonly methods: object }> = { readonly [Method in keyof Service["methods"]]: Access };

const ca: Rows<typeof CAService> = { GetRootCACertificate: "anyone", GetUnlockKey: "admin" };

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

const taskCalls: Rows<typeof TaskCallsService> = {
  Listen: "worker-or-manager",
  Answer: "worker-or-manager",
  Inspect: "worker-or-manager",
};

const policy: Rows<typeof PolicyService> = { Follow: "worker-or-manager", Report: "worker-or-manager" };

const networks: Rows<typeof NetworksService> = { Follow: "worker-or-manager" };

const resourceAllocator: Rows<typeof ResourceAllocatorService> = {
  AttachNetwork: "worker-or-manager",
  DetachNetwork: "worker-or-manager",
};

// The keys decrypt everything: neither the control socket nor any certificate but a manager's gets them.
const dataKeys: Rows<typeof DataKeysService> = {
  GetDataKeys: "manager",
  PrepareNats: "manager",
  UseNatsAuthorities: "manager",
};
const lock: Rows<typeof LockService> = { GetLock: "manager-or-local", Unlock: "manager-or-local" };

const raftMembership: Rows<typeof RaftMembershipService> = { Join: "manager", Leave: "manager" };
const health: Rows<typeof HealthService> = { Check: "read-only" };
const logs: Rows<typeof LogsService> = { SubscribeLogs: "read-only" };
// Without the fields hidden from users' roles (users.ts).
const watch: Rows<typeof WatchService> = { Watch: "read-only" };

// As in the JSON API's table (`edges/juju/facades/control.ts`), except that everybody sees the cluster, without join tokens.
const control: Rows<typeof ControlService> = {
  GetNode: "read-only",
  ListNodes: "read-only",
  UpdateNode: "admin",
  RemoveNode: "admin",
  GetTask: "read-only",
  ListTasks: "read-only",
  RemoveTask: "operator",
  GetService: "read-only",
  ListServices: "read-only",
  CreateService: "operator",
  UpdateService: "operator",
  RemoveService: "operator",
  ListServiceStatuses: "read-only",
  GetNetwork: "read-only",
  ListNetworks: "read-only",
  CreateNetwork: "operator",
  RemoveNetwork: "operator",
  GetCluster: "read-only",
  ListClusters: "read-only",
  UpdateCluster: "admin",
  GetSecret: "read-only",
  UpdateSecret: "operator",
  ListSecrets: "read-only",
  CreateSecret: "operator",
  RemoveSecret: "operator",
  GetConfig: "read-only",
  UpdateConfig: "operator",
  ListConfigs: "read-only",
  CreateConfig: "operator",
  RemoveConfig: "operator",
  GetExtension: "read-only",
  CreateExtension: "operator",
  RemoveExtension: "operator",
  GetResource: "read-only",
  UpdateResource: "operator",
  ListResources: "read-only",
  CreateResource: "operator",
  RemoveResource: "operator",
  CreateVolume: "operator",
  GetVolume: "read-only",
  UpdateVolume: "operator",
  ListVolumes: "read-only",
  RemoveVolume: "operator",
};

const operator: Rows<typeof OperatorService> = {
  Why: "read-only",
  RotateCertificate: "admin",
  Status: "read-only",
  CompareClocks: "read-only",
  // To look; users.ts requires `operator` for the other actions.
  ControlRollout: "read-only",
  // The request contains a whole spec. Read-only users do not see one, so the plan of what they could send would be wrong.
  PlanService: "operator",
  PlanRebalance: "read-only",
  FindVersion: "read-only",
  // The method asked of the past has its own row, which applies too (users.ts).
  ReadAt: "read-only",
  History: "read-only",
  ListExtensions: "read-only",
};

// Resource usage; users.ts requires `operator` for commands and signals.
const taskAccess: Rows<typeof TaskAccessService> = { Call: "read-only", Send: "operator" };

// Contexts and events have only the fields that their charts list for viewers.
const inspection: Rows<typeof InspectionService> = {
  Watch: "read-only",
  Recent: "read-only",
  Record: "read-only",
};

// It has everything: secrets, join tokens and the root's key.
const backup: Rows<typeof BackupService> = { Take: "admin" };

const users: Rows<typeof UsersService> = {
  ListUsers: "admin",
  AddUser: "admin",
  SetUserPassword: "admin",
  GrantUser: "admin",
  DisableUser: "admin",
  RemoveUser: "admin",
  ResetUser: "admin",
};

const userCertificates: Rows<typeof UserCertificatesService> = { Login: "anyone", IssueUserCertificate: "admin" };

function byPath(service: { readonly methods: object }, rows: Readonly<Record<string, Access>>): [string, Access][] {
  return Object.entries(service.methods as Readonly<Record<string, { readonly path: string }>>).map(
    ([name, method]) => [method.path, rows[name] as Access],
  );
}

/** Required access by the HTTP/2 path of every method. */
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
  ...byPath(ControlService, control),
  ...byPath(OperatorService, operator),
  ...byPath(BackupService, backup),
  ...byPath(TaskAccessService, taskAccess),
  ...byPath(TaskCallsService, taskCalls),
  ...byPath(InspectionService, inspection),
  ...byPath(UsersService, users),
  ...byPath(UserCertificatesService, userCertificates),
]);

/** The content of a user's certificate. */
interface UserCertificate {
  readonly name: string;
  /** Mark of the password under which it was issued: see `Membership.userRole`. */
  readonly mark: string;
  /** The cluster's id. */
  readonly organization: string;
}

/** The peer of a connection, determined once when it connects. */
export interface Caller {
  /** With the identity of its certificate, whether or not that is still current. */
  readonly peer: Peer;
  /** The same without identity. */
  readonly anonymous: Peer;
  /** Why no root of ours vouches for the certificate it showed; null if there is no problem. */
  readonly rejection: string | null;
  /** True if it showed a certificate of this cluster, of any role. */
  readonly isCertified: boolean;
  /** Set if the certificate is a user's; such a caller has no identity of a node. */
  readonly user?: UserCertificate;
  /** When the first certificate of its chain expires, in milliseconds since the epoch; null without one. */
  readonly notAfterMs: number | null;
}

/** Decides whether an identity is current. Called at each call, and again after a notified change. */
export interface Membership {
  /** The cluster's id. */
  organization(): string;
  isRemoved(nodeId: string): boolean;
  /** Whether the node is not a manager (demoted or unknown), whatever its certificate says. If absent, no node is. */
  isDemoted?(nodeId: string): boolean;
  /**
   * The user's current role; null if there is no such user, it is disabled, or the mark does not belong to its current
   * password. If absent, there are no users.
   */
  userRole?(name: string, mark: string): Role | null;
  /**
   * Calls back with the ids of nodes that were removed or whose role changed, and the tags (`user-NAME`) of users that were
   * removed, disabled or enabled, or whose role or password changed, in the turn in which this becomes known.
   */
  onChange(listener: (ids: readonly string[]) => void): Subscription;
}

/** The role that a caller's certificate grants now: `nobody` without one, or if its node was removed. */
export type Standing = "nobody" | "worker" | "manager" | Role;

function refusal(text: string): string {
  return `Permission denied: unauthorized peer role: rpc error: code = PermissionDenied desc = ${text}`;
}

const rolesOf = {
  "worker-or-manager": ["swarm-worker", "swarm-manager"],
  manager: ["swarm-manager"],
  "manager-or-local": ["swarm-manager"],
  "read-only": ["swarm-manager"],
  operator: ["swarm-manager"],
  admin: ["swarm-manager"],
} as const satisfies Record<Exclude<Access, "anyone">, readonly string[]>;

/** Why this caller's identity does not have one of the given roles in this cluster; null if it does. */
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

/** The user's role; null if the certificate is no longer valid or belongs to another cluster. */
function roleNow({ name, mark, organization }: UserCertificate, membership: Membership): Role | null {
  if (organization === "" || organization !== membership.organization()) return null;
  return membership.userRole?.(name, mark) ?? null;
}

/** R3 */
function authorizeUser(access: Access, caller: Caller, user: UserCertificate, membership: Membership): Peer | string {
  if (access === "anyone") return caller.anonymous;
  const role = roleNow(user, membership);
  if (role === null)
    return (
      `permission denied: the certificate of user ${user.name} is no longer valid: ` +
      "the user was disabled or removed, or changed the password. Log in again with 'muster login'"
    );
  if (!isRole(access)) return "permission denied: this call is not available to users";
  return isAtLeast(role, access) ? { ...caller.peer, role } : roleTooLow(user.name, role, access);
}

/** The error when a call requires a higher role. */
export function roleTooLow(name: string, role: Role, needed: Role): string {
  return `permission denied: this needs the role ${needed}, and user ${name} has the role ${role}`;
}

/** A connection lives as long as its standing stays what it was at the start. R2 */
export function standingOf(caller: Caller, membership: Membership): Standing {
  if (caller.rejection !== null) return "nobody";
  if (caller.user !== undefined) return roleNow(caller.user, membership) ?? "nobody";
  if (objection(caller, rolesOf["worker-or-manager"], membership) !== null) return "nobody";
  return objection(caller, rolesOf.manager, membership) === null ? "manager" : "worker";
}

/** The key that a connection is counted under and notified by: its node's id or its user's tag; empty without either. */
export function certifiedId({ peer }: Caller): string {
  return peer.identity?.nodeId ?? peer.user ?? "";
}

/** The peer to pass to the handler, or the text of the PERMISSION_DENIED that refuses the call. */
export function authorize(access: Access, caller: Caller, membership: Membership): Peer | string {
  if (caller.rejection !== null) return refusal(`client certificate not accepted: ${caller.rejection}`);
  if (caller.peer.local && access !== "worker-or-manager" && access !== "manager") return caller.peer;
  if (caller.user !== undefined) return authorizeUser(access, caller, caller.user, membership);
  if (access === "anyone") {
    return objection(caller, rolesOf["worker-or-manager"], membership) === null ? caller.peer : caller.anonymous;
  }
  const reason = objection(caller, rolesOf[access], membership);
  return reason === null ? caller.peer : refusal(reason);
}
