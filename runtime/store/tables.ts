/** Metadata of each table: its field in StoreObject, its codec and where its objects keep their name. */
import type { Codec } from "../../proto/codec.ts";
import {
  Cluster,
  Config,
  Extension,
  Format,
  Kind,
  Manager,
  Network,
  Node,
  Resource,
  Rollout,
  Secret,
  Service,
  Session,
  Task,
  User,
  Volume,
  type Meta,
  type StoreObject,
} from "../../proto/gen/messages.ts";
import type { Tables } from "./store.ts";
import { tableNames, type TableName } from "../../proto/table-names.ts";

/** Any object of the store. */
export type AnyObject = Tables[TableName];

export const codecs: { readonly [Name in TableName]: Codec<Tables[Name]> } = {
  node: Node,
  service: Service,
  network: Network,
  task: Task,
  cluster: Cluster,
  secret: Secret,
  resource: Resource,
  extension: Extension,
  config: Config,
  volume: Volume,
  session: Session,
  manager: Manager,
  rollout: Rollout,
  user: User,
  format: Format,
};

const kinds: { readonly [Name in TableName]: Kind } = {
  node: Kind.KIND_NODE,
  service: Kind.KIND_SERVICE,
  network: Kind.KIND_NETWORK,
  task: Kind.KIND_TASK,
  cluster: Kind.KIND_CLUSTER,
  secret: Kind.KIND_SECRET,
  resource: Kind.KIND_RESOURCE,
  extension: Kind.KIND_EXTENSION,
  config: Kind.KIND_CONFIG,
  volume: Kind.KIND_VOLUME,
  session: Kind.KIND_SESSION,
  manager: Kind.KIND_MANAGER,
  rollout: Kind.KIND_ROLLOUT,
  user: Kind.KIND_USER,
  format: Kind.KIND_FORMAT,
};

export function kindOf(table: TableName): Kind {
  return kinds[table];
}

/** Undefined for KIND_UNKNOWN and for kinds of a newer version. */
export function tableOf(kind: Kind): TableName | undefined {
  return tableNames[kind - 1];
}

/** The object in a StoreObject and its table; null if it is empty. */
export function unwrap(wrapped: StoreObject): { readonly table: TableName; readonly object: AnyObject } | null {
  for (const table of tableNames) {
    const object = wrapped[table];
    if (object !== null) return { table, object };
  }
  return null;
}

/** A copy with another meta; the object itself is unchanged. */
export function withMeta<Name extends TableName>(table: Name, object: Tables[Name], meta: Meta): Tables[Name] {
  return codecs[table].patch(object, { meta } as Partial<Tables[Name]>);
}

/**
 * The name that the table indexes, in lower case as SwarmKit compares names; empty if there is none. A task's computed name is
 * not stored anywhere, so it is not found here.
 */
export function nameKey<Name extends TableName>(table: Name, object: Tables[Name]): string {
  return nameOf(table, object as AnyObject).toLowerCase();
}

function nameOf(table: TableName, object: AnyObject): string {
  switch (table) {
    case "node":
      return (object as Node).description?.hostname ?? "";
    case "service":
    case "network":
    case "cluster":
    case "secret":
    case "config":
    case "volume":
      return (object as Service).spec?.annotations?.name ?? "";
    case "task":
    case "resource":
    case "extension":
      return (object as Task | Resource | Extension).annotations?.name ?? "";
    case "session":
    case "manager":
    case "rollout":
    case "user":
    case "format":
      return "";
  }
}
