/**
 * What can be asked of the JSON API: facades, tables of methods that a request reaches by type, version and name. What
 * they do is written in `facades/`; who may ask for what is told by the tables, and checked in one place
 * (`dispatch.ts`), in this order:
 *
 *   1. logged in?  2. may this kind of identity use the type (`who`)?  3. does the type hide its entities from it
 *   (`admits`)?  4. is there such an entity, or watcher (`lookUp`)?  5. may this one ask for this (`needs`, `allows`)?
 */
import type { ControlService, OperatorService, TaskAccessService, UsersService } from "../../proto/gen/messages.ts";
import type { LogsLines } from "../../proto/log-lines.ts";
import type { Identity, LoginName, Role } from "../../runtime/json-api.ts";
import type { JsonWatchers } from "../../runtime/json-watch.ts";
import type { Clock, Logger } from "../../runtime/ports.ts";
import type { CallContext, ServiceHandlers } from "../../runtime/rpc.ts";
import type { Store } from "../../runtime/store/store.ts";

import type { Feed } from "./feed/feed.ts";
import type { Params } from "./params.ts";
import type { Resources } from "./resources.ts";
import type { Json } from "./results.ts";

/** How a request was written, and how its reply is: `V0` CamelCase as of Juju 1.x and before, `V1` kebab-case as of 2.x and 3.x. */
export type Shape = "V0" | "V1";

export type { Identity, Role } from "../../runtime/json-api.ts";

/** One connection's login. */
export interface Session {
  /** What it logged in as: `user-admin`, `machine-…`, `unit-…`. */
  readonly tag: string;
  readonly identity: Identity;
  /** A connection to the controller alone does not offer what belongs to the model. */
  readonly scope: "controller" | "model";
  /** Watchers and pingers of this connection. */
  readonly resources: Resources;
  /** Major version of the client as it said at login; 2 when it did not. */
  readonly clientMajor: number;
  /** Aborted when the connection ends. */
  readonly signal: AbortSignal;
}

export interface Call {
  readonly shape: Shape;
  readonly type: string;
  /** The facade's version that is asked for; 0 is also that of the seed's object style. */
  readonly version: number;
  /** The entity's or the watcher's; empty where the request names none. */
  readonly id: string;
  readonly request: string;
  readonly params: Params;
  readonly session: Session;
  /** For handlers of Control and Operator: says who asks for what, so that the history does. */
  readonly rpc: CallContext;
}

export interface Method {
  /** Least role of a user who may ask for it. Agents are not asked for a role. */
  readonly needs: Role;
  /** Versions of the facade that have it; all when absent. */
  readonly versions?: readonly number[];
  /** Checked after the look-up; when it says no: `permission denied`. */
  allows?(call: Call): boolean;
  /** The result, in kebab-case (`results.ts`). Throws RequestError; what else it throws is told without details. */
  run(call: Call): Promise<Json> | Json;
}

export interface Facade {
  readonly type: string;
  readonly versions: readonly number[];
  /** The one shape that it is served in; both when absent. */
  readonly shape?: Shape;
  readonly who: "users" | "agents" | "everybody";
  /** Where it is offered; in both when absent. */
  readonly scope?: "controller" | "model";
  /**
   * `none`: a request that names an id is answered `id not found`. `watcher`: the id is of a resource of this
   * connection and type. `entity`: the seed's style; `lookUp` finds it.
   */
  readonly id: "none" | "watcher" | "entity";
  /** Left out of the list that a login returns: the seed's object types are not facades. */
  readonly isUnlisted?: boolean;
  /** Waited for before anything is checked, where what is asked about may not be there yet; null: there is nothing to wait for. */
  ready?(): Promise<void> | null;
  /** Checked before the look-up, where not even names may be learnt; when it says no: `permission denied`. */
  admits?(call: Call): boolean;
  /** Throws RequestError `not found`. */
  lookUp?(call: Call): void;
  readonly methods: { readonly [request: string]: Method };
}

/** What facades work with. */
export interface FacadeSources {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly control: ServiceHandlers<typeof ControlService>;
  readonly operator: ServiceHandlers<typeof OperatorService>;
  readonly taskAccess: ServiceHandlers<typeof TaskAccessService>;
  readonly logs: ServiceHandlers<typeof LogsLines>;
  readonly users: ServiceHandlers<typeof UsersService>;
  /** Gives a user that is there another password, or the agent of a node or task its first or another. Rejects with RpcError. */
  setPassword(name: LoginName, password: string, rpc: CallContext): Promise<void>;
  /** What all connections of the process are shown of the cluster. */
  readonly feed: Feed;
  readonly watchers: JsonWatchers;
}

export { isAtLeast } from "../../runtime/user-roles.ts";
