/**
 * Facades of the JSON API: tables of methods, found by type, version and name. `facades/` implements them; the tables define
 * permissions, which one place checks (`dispatch.ts`), in this order:
 *
 *   1. a login has succeeded; 2. this kind of identity may use the type (`who`); 3. the type does not hide its entities from
 *   the identity (`admits`); 4. the entity or watcher exists (`lookUp`); 5. the identity may call the method (`needs`,
 *   `allows`).
 */
import type { ControlService, OperatorService, TaskAccessService, UsersService } from "../../proto/gen/messages.ts";
import type { LogsLines } from "../../proto/log-lines.ts";
import type { Identity, LoginName, Role } from "../../runtime/ports/json-api.ts";
import type { JsonWatchers } from "../../runtime/ports/json-watch.ts";
import type { Clock, Logger } from "../../runtime/ports/index.ts";
import type { CallContext, ServiceHandlers } from "../../runtime/ports/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Feed } from "./feed/feed.ts";
import type { Params } from "./params.ts";
import type { Resources } from "./resources.ts";
import type { Json } from "./results.ts";
import type { Shape } from "./shape.ts";

export type { Identity, Role } from "../../runtime/ports/json-api.ts";

/** One connection's login. */
export interface Session {
  /** The tag of the login: `user-admin`, `machine-…`, `unit-…`. */
  readonly tag: string;
  readonly identity: Identity;
  /** A connection to the controller does not offer the model's facades. */
  readonly scope: "controller" | "model";
  /** Watchers and pingers of this connection. */
  readonly resources: Resources;
  /** Major version of the client, from the login; 2 if it reported none. */
  readonly clientMajor: number;
  /** Aborted when the connection ends. */
  readonly signal: AbortSignal;
}

export interface Call {
  readonly shape: Shape;
  readonly type: string;
  /** Requested version of the facade; 0 also means the seed's object style. */
  readonly version: number;
  /** Id of the entity or watcher; empty if the request has none. */
  readonly id: string;
  readonly request: string;
  readonly params: Params;
  readonly session: Session;
  /** Passed to handlers of Control and Operator; identifies the caller in the history. */
  readonly rpc: CallContext;
}

export interface Method {
  /** Minimum role of a user. Agents need no role. */
  readonly needs: Role;
  /** Versions of the facade with this method; all if absent. */
  readonly versions?: readonly number[];
  /** Checked after the look-up; if false: `permission denied`. */
  allows?(call: Call): boolean;
  /** Returns the result in kebab-case (`results.ts`). Throws RequestError; other errors reach the client without details. */
  run(call: Call): Promise<Json> | Json;
}

export interface Facade {
  readonly type: string;
  readonly versions: readonly number[];
  /** The only shape that has it; both if absent. */
  readonly shape?: Shape;
  readonly who: "users" | "agents" | "everybody";
  /** Offered in this scope only; in both if absent. */
  readonly scope?: "controller" | "model";
  /**
   * `none`: a request with an id gets `id not found`. `watcher`: the id of a resource of this connection and type.
   * `entity`: the seed's style; `lookUp` finds it.
   */
  readonly id: "none" | "watcher" | "entity";
  /** Omitted from the list in the login's result: the seed's object types are not facades. */
  readonly isUnlisted?: boolean;
  /** Awaited before any check, if the requested entity may not exist yet; null: nothing to wait for. */
  ready?(): Promise<void> | null;
  /** Checked before the look-up, where even the existence of names is secret; if false: `permission denied`. */
  admits?(call: Call): boolean;
  /** Throws RequestError `not found`. */
  lookUp?(call: Call): void;
  readonly methods: { readonly [request: string]: Method };
}

/** Dependencies of the facades. */
export interface FacadeSources {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly control: ServiceHandlers<typeof ControlService>;
  readonly operator: ServiceHandlers<typeof OperatorService>;
  readonly taskAccess: ServiceHandlers<typeof TaskAccessService>;
  readonly logs: ServiceHandlers<typeof LogsLines>;
  readonly users: ServiceHandlers<typeof UsersService>;
  /** Changes the password of an existing user, or sets one for the agent of a node or task. Rejects with RpcError. */
  setPassword(name: LoginName, password: string, rpc: CallContext): Promise<void>;
  /** The view of the cluster that all connections share. */
  readonly feed: Feed;
  readonly watchers: JsonWatchers;
}
