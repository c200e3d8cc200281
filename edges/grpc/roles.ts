/**
 * Who may call what: one row for every method of every service, after docs/reference/swarm-worker-protocol.md §2.2, and the
 * one place that decides. A method missing here does not compile.
 *
 * R1: a handler is given an identity only if it is a current one of this cluster: its certificate was signed by our CA,
 *     names this organization and a node that was not removed. A removed node that asks for a certificate is nobody.
 * R2: what a call was admitted for lasts no longer than the reason: see `Standing`, and server.ts G3.
 * R3: a user's certificate opens what the user's role admits at this moment, and nothing that nodes have. It counts while the
 *     user has the password that it was issued under, and is enabled.
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
  UserCertificatesService,
  UsersService,
  WatchService,
} from "../../proto/gen/messages.ts";
import type { Subscription } from "../../runtime/ports.ts";
import type { Peer } from "../../runtime/rpc.ts";
import { isAtLeast, type Role } from "../../runtime/user-roles.ts";

/**
 * `anyone`: also without a certificate. `worker-or-manager`, `manager`: with a certificate of that role.
 * `manager-or-local`: with a manager's, or on the control socket. `read-only`, `operator`, `admin`: those two, and users of that
 * role or a greater one.
 */
export type Access = "anyone" | "worker-or-manager" | "manager" | "manager-or-local" | Role;

/** The roles of users among them. */
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
const health: Rows<typeof HealthService> = { Check: "read-only" };
const logs: Rows<typeof LogsService> = { SubscribeLogs: "read-only" };
// Without what users' roles hide (users.ts).
const watch: Rows<typeof WatchService> = { Watch: "read-only" };

// As the JSON API's table (`edges/juju/facades/control.ts`), except that everybody sees the cluster: without join tokens.
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
  // Looking; users.ts wants an operator for the rest.
  ControlRollout: "read-only",
  // It takes a whole spec, which read-only users are not shown: what they could send would be planned wrongly.
  PlanService: "operator",
  PlanRebalance: "read-only",
  FindVersion: "read-only",
  // What is asked of the past has a row of its own, which counts too (users.ts).
  ReadAt: "read-only",
  History: "read-only",
  ListExtensions: "read-only",
};

// Use of resources; users.ts wants an operator for commands and signals.
const taskAccess: Rows<typeof TaskAccessService> = { Call: "read-only", Send: "operator" };

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
  ...byPath(ControlService, control),
  ...byPath(OperatorService, operator),
  ...byPath(TaskAccessService, taskAccess),
  ...byPath(TaskCallsService, taskCalls),
  ...byPath(UsersService, users),
  ...byPath(UserCertificatesService, userCertificates),
]);

/** What a user's certificate says. */
export interface UserCertificate {
  readonly name: string;
  /** Of the password under which it was issued: see `Membership.userRole`. */
  readonly mark: string;
  /** The cluster's id. */
  readonly organization: string;
}

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
  /** Where that is a user's; such a caller has no identity of a node. */
  readonly user?: UserCertificate;
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
  /**
   * What that user may do now; null when there is no such user, it is disabled, or has another password than the one that the
   * mark is of. Where this is absent there are no users.
   */
  userRole?(name: string, mark: string): Role | null;
  /**
   * Calls back with the ids of nodes that were removed or whose role changed, and the tags (`user-NAME`) of users that were
   * removed, disabled or enabled, or have another role or password, in the turn in which this becomes known.
   */
  onChange(listener: (ids: readonly string[]) => void): Subscription;
}

/** What a caller's certificate is worth at the moment: `nobody` without one, and when its node was removed. */
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

/** The user's role; null when the certificate counts for nothing any more, or is of another cluster. */
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
      `permission denied: the certificate of user ${user.name} is not valid any more: ` +
      "the user was disabled or removed, or has another password. Log in again with 'muster login'"
    );
  if (!isRole(access)) return "permission denied: this call is not for users";
  return isAtLeast(role, access) ? { ...caller.peer, role } : lacking(user.name, role, access);
}

/** Why a user may not call what only a greater role may. */
export function lacking(name: string, role: Role, needed: Role): string {
  return `permission denied: this needs the role ${needed}, and user ${name} has the role ${role}`;
}

/** A connection lives as long as this stays what it was when it was made. R2 */
export function standingOf(caller: Caller, membership: Membership): Standing {
  if (caller.rejection !== null) return "nobody";
  if (caller.user !== undefined) return roleNow(caller.user, membership) ?? "nobody";
  if (objection(caller, rolesOf["worker-or-manager"], membership) !== null) return "nobody";
  return objection(caller, rolesOf.manager, membership) === null ? "manager" : "worker";
}

/** Under what a connection is counted, and told of changes: the id of its node, or the tag of its user; empty without either. */
export function certifiedId({ peer }: Caller): string {
  return peer.identity?.nodeId ?? peer.user ?? "";
}

/** The peer to hand to the handler, or the text of the PERMISSION_DENIED that refuses the call. */
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
