/** The read side of a replica, and the way to have something written: what every actor and edge knows of the store. */
import type {
  Caller,
  Cluster,
  Config,
  Extension,
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
import type { CallSignal } from "../rpc.ts";
import type { Subscription } from "../ports.ts";

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
}
export type TableName = keyof Tables;

/** One object's change, as a watcher sees it. `old` is null for a creation, `object` is the last state for a removal. */
export type ObjectChange = {
  readonly [Name in TableName]: {
    readonly table: Name;
    readonly action: "create" | "update" | "remove";
    readonly object: Tables[Name];
    readonly old: Tables[Name] | null;
  };
}[TableName];

/** Whose some consecutive changes of a commit are. */
export interface Cause {
  /** W3C trace context; empty when that request is not traced. */
  readonly traceparent: string;
  /** How many changes. */
  readonly changes: number;
  /** Who asked for them; null for what the system did by itself. */
  readonly caller: Caller | null;
  /** Which part of a manager decided them, where nobody asked. */
  readonly origin: Origin;
}

/** All changes of one transaction. */
export interface Commit {
  readonly version: number;
  /** Milliseconds since the epoch, by the writer's clock. */
  readonly time: number;
  /** Node id of the manager that wrote it; absent where a snapshot took the place of what was missed. */
  readonly writer?: string;
  readonly changes: readonly ObjectChange[];
  /** In the order of `changes`; empty when none is traced and nobody is named. For telemetry and history only. */
  readonly causes: readonly Cause[];
}

/** Objects are immutable: an update makes a new object, so whoever holds one holds a consistent past. */
export interface Store {
  /** Sequence of the last transaction applied; 0 before the first. */
  readonly version: number;
  get<Name extends TableName>(table: Name, id: string): Tables[Name] | undefined;
  /** In order of creation on this replica. */
  all<Name extends TableName>(table: Name): Iterable<Tables[Name]>;
  count(table: TableName): number;
  /** By annotations.name, without regard to case, as SwarmKit indexes names; nodes by hostname (the first such). */
  byName<Name extends TableName>(table: Name, name: string): Tables[Name] | undefined;
  tasksByService(serviceId: string): Iterable<Task>;
  tasksByNode(nodeId: string): Iterable<Task>;
  /** All attempts of one slot (slot 0 of a global service holds all its nodes). */
  tasksBySlot(serviceId: string, slot: number): Iterable<Task>;
  /** All attempts of one place: of the slot, or, for slot 0, of the node; in the order in which they were made. */
  tasksAt(serviceId: string, slot: number, nodeId: string): Iterable<Task>;
  /** Tasks that mention the secret, config or network in their spec. */
  tasksReferencing(id: string): Iterable<Task>;
  /** Called after each transaction was applied, in order, with the state already changed. A listener must not throw. */
  watch(listener: (commit: Commit) => void): Subscription;
}

/** `unavailable`: no leader took it within its time; with `maybe`, it may yet have happened. */
export type ProposeOutcome =
  | { readonly kind: "committed"; readonly version: number; readonly skipped: number }
  | { readonly kind: "refused"; readonly code: ErrorCode; readonly message: string }
  | { readonly kind: "unavailable"; readonly maybe: boolean; readonly message: string };

export interface Proposal {
  readonly operations: readonly Operation[];
  readonly mode: ProposeRequest_Mode;
  readonly traceparent?: string;
  /** Who asked for it, or which part of this manager decided it; for the history. At most one of the two. */
  readonly caller?: Caller;
  readonly origin?: Origin;
  /** How long to look for a leader before giving up, in milliseconds: it is not put into the log after that. */
  readonly timeoutMs: number;
  /** Aborts when nobody waits for the outcome any more: it is not put into the log after that, unless it is on its way there. */
  readonly signal?: CallSignal | undefined;
  /**
   * For a leader's duties: only the leader of this epoch may write it. The answer is then always certain and `timeoutMs`
   * does not count: it is `committed`, or `refused` (with `staleEpoch` once that epoch has ended without it).
   */
  readonly epoch?: number;
  /** Goes the whole way although there is nothing to write: through the leader's ledger, the log's majority and this replica. */
  readonly isProbe?: boolean;
}

export interface Proposer {
  /** Resolves once it is in the log and applied to this process's own replica. Never rejects. */
  propose(proposal: Proposal): Promise<ProposeOutcome>;
}
