/** The read side of a replica, and the way to write: the store's interface for every actor and edge. */
import type {
  Caller,
  Cluster,
  Config,
  Extension,
  Format,
  Manager,
  Network,
  Node,
  Operation,
  Origin,
  ProposeRequest_Mode,
  Resource,
  Rollout,
  Secret,
  Service,
  Session,
  Task,
  User,
  Volume,
} from "../../proto/gen/messages.ts";
import type { ErrorCode } from "../error-codes.ts";
import type { CallSignal } from "../ports/rpc.ts";
import type { Subscription } from "../ports/index.ts";
import type { TableName } from "../../proto/table-names.ts";

/** The tables, by the name of their field in StoreObject. */
export interface Tables {
  readonly node: Node;
  readonly service: Service;
  readonly network: Network;
  readonly task: Task;
  readonly cluster: Cluster;
  readonly secret: Secret;
  readonly resource: Resource;
  readonly extension: Extension;
  readonly config: Config;
  readonly volume: Volume;
  readonly session: Session;
  readonly manager: Manager;
  readonly rollout: Rollout;
  readonly user: User;
  readonly format: Format;
}

/** One object's change, as a watcher sees it. `old` is null for a creation; `object` is the last state for a removal. */
export type ObjectChange = {
  readonly [Name in TableName]: {
    readonly table: Name;
    readonly action: "create" | "update" | "remove";
    readonly object: Tables[Name];
    readonly old: Tables[Name] | null;
  };
}[TableName];

/** The cause of consecutive changes of a commit. */
export interface Cause {
  /** W3C trace context; empty if that request is not traced. */
  readonly traceparent: string;
  /** Number of changes. */
  readonly changes: number;
  /** The requester; null for changes by the system itself. */
  readonly caller: Caller | null;
  /** The part of a manager that decided them, if nobody requested them. */
  readonly origin: Origin;
}

/** All changes of one transaction. */
export interface Commit {
  readonly version: number;
  /** Milliseconds since the epoch, by the writer's clock. */
  readonly time: number;
  /** Node id of the manager that wrote it; absent if a snapshot replaced the missed records. */
  readonly writer?: string;
  readonly changes: readonly ObjectChange[];
  /** In the order of `changes`; empty if none is traced or attributed. For telemetry and history only. */
  readonly causes: readonly Cause[];
}

/** Objects are immutable: an update creates a new object, so references to old ones remain a consistent past. */
export interface Store {
  /** Sequence of the last transaction applied; 0 before the first. */
  readonly version: number;
  get<Name extends TableName>(table: Name, id: string): Tables[Name] | undefined;
  /** In order of creation on this replica. */
  all<Name extends TableName>(table: Name): Iterable<Tables[Name]>;
  count(table: TableName): number;
  /** By annotations.name, case-insensitive as in SwarmKit's index; nodes by hostname (the first match). */
  byName<Name extends TableName>(table: Name, name: string): Tables[Name] | undefined;
  tasksByService(serviceId: string): Iterable<Task>;
  tasksByNode(nodeId: string): Iterable<Task>;
  /** All attempts in one slot (slot 0 of a global service contains all its nodes). */
  tasksBySlot(serviceId: string, slot: number): Iterable<Task>;
  /** All attempts at one place, in order of creation: in the slot, or, for slot 0, on the node. */
  tasksAt(serviceId: string, slot: number, nodeId: string): Iterable<Task>;
  /** Tasks whose spec references the secret, config or network. */
  tasksReferencing(id: string): Iterable<Task>;
  /** Called after each transaction, in order, with the state already changed. A listener must not throw. */
  watch(listener: (commit: Commit) => void): Subscription;
}

/** `unavailable`: no leader accepted it in time; with `maybe`, it may still take effect. */
export type ProposeOutcome =
  | { readonly kind: "committed"; readonly version: number; readonly skipped: number }
  | { readonly kind: "refused"; readonly code: ErrorCode; readonly message: string }
  | { readonly kind: "unavailable"; readonly maybe: boolean; readonly message: string };

export interface Proposal {
  readonly operations: readonly Operation[];
  readonly mode: ProposeRequest_Mode;
  readonly traceparent?: string;
  /** The requester, or the part of this manager that decided it, for the history. At most one of the two. */
  readonly caller?: Caller;
  readonly origin?: Origin;
  /** How long to search for a leader, in milliseconds: it is not appended after that. */
  readonly timeoutMs: number;
  /** Aborts when nobody waits for the outcome any more: it is then not appended, unless the append is in progress. */
  readonly signal?: CallSignal | undefined;
  /**
   * For a leader's duties: only the leader of this epoch may write it. The outcome is then always certain and `timeoutMs` is
   * ignored: `committed`, or `refused` (with `staleEpoch` once that epoch has ended without it).
   */
  readonly epoch?: number;
  /** Takes the whole path although it writes nothing: through the leader's ledger, the log's majority and this replica. */
  readonly isProbe?: boolean;
}

export interface Proposer {
  /** Resolves once it is in the log and applied to this process's own replica. Never rejects. */
  propose(proposal: Proposal): Promise<ProposeOutcome>;
}
