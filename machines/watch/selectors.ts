/**
 * The selectors of Watch: the kinds that each applies to, what it compares, and its index key. Comparisons are
 * case-sensitive, like SwarmKit's.
 */
import type { Annotations, Node, Resource, SelectBy, Service, Task, TaskSpec } from "../../proto/gen/messages.ts";
import { taskName } from "../list-filters.ts";

export type WatchedTable =
  | "node"
  | "service"
  | "network"
  | "task"
  | "cluster"
  | "secret"
  | "resource"
  | "extension"
  | "config"
  | "volume";

/** The common part of all watchable objects. */
export type WatchedObject = { readonly id: string };

export type SelectorSort = keyof SelectBy;

/** A field that objects can be looked up by; an object has at most one value of each. */
export type Field = "id" | "serviceId" | "nodeId" | "kind";

interface SelectorKind {
  /** Null: applies to all tables. */
  readonly tables: readonly WatchedTable[] | null;
  readonly matcher: (table: WatchedTable, by: SelectBy) => (object: WatchedObject) => boolean;
  readonly key?: (by: SelectBy) => { readonly field: Field; readonly value: string };
}

function annotationsOf(table: WatchedTable, object: WatchedObject): Annotations | null {
  if (table === "task" || table === "resource" || table === "extension") return (object as Resource).annotations;
  return (object as Service).spec?.annotations ?? null;
}

/** A node's name is its hostname, as in lists; a task without a name of its own has a derived one. */
function nameOf(table: WatchedTable, object: WatchedObject): string {
  if (table === "task") return taskName(object as Task);
  if (table === "node") return (object as Node).description?.hostname ?? "";
  return annotationsOf(table, object)?.name ?? "";
}

function specOf(table: WatchedTable, object: WatchedObject): TaskSpec | null {
  return table === "task" ? (object as Task).spec : ((object as Service).spec?.task ?? null);
}

function usesNetwork(table: WatchedTable, object: WatchedObject, id: string): boolean {
  if (specOf(table, object)?.networks.some(({ target }) => target === id) === true) return true;
  // A service can also name the network in its own spec (before Docker 17.06), or use it through the ports that it publishes.
  return table === "task"
    ? (object as Task).networks.some(({ network }) => network?.id === id)
    : (object as Service).spec?.networks.some(({ target }) => target === id) === true ||
        (object as Service).endpoint?.virtualIps.some(({ networkId }) => networkId === id) === true;
}

const taskOnly: readonly WatchedTable[] = ["task"];
const nodeOnly: readonly WatchedTable[] = ["node"];
const withTaskSpec: readonly WatchedTable[] = ["service", "task"];

export const selectors: { readonly [Sort in SelectorSort]: SelectorKind } = {
  id: {
    tables: null,
    matcher:
      (_, { id: wanted }) =>
      ({ id }) =>
        id === wanted,
    key: ({ id }) => ({ field: "id", value: id ?? "" }),
  },
  idPrefix: {
    tables: null,
    matcher: (_, by) => {
      const prefix = by.idPrefix ?? "";
      return ({ id }) => id.startsWith(prefix);
    },
  },
  name: { tables: null, matcher: (table, by) => (object) => nameOf(table, object) === by.name },
  namePrefix: {
    tables: null,
    matcher: (table, by) => {
      const prefix = by.namePrefix ?? "";
      return (object) => nameOf(table, object).startsWith(prefix);
    },
  },
  custom: {
    tables: null,
    matcher:
      (table, { custom }) =>
      (object) =>
        annotationsOf(table, object)?.indices.some(({ key, val }) => key === custom?.index && val === custom?.value) ===
        true,
  },
  customPrefix: {
    tables: null,
    matcher: (table, by) => {
      const { index = "", value = "" } = by.customPrefix ?? {};
      return (object) =>
        annotationsOf(table, object)?.indices.some(({ key, val }) => key === index && val.startsWith(value)) === true;
    },
  },
  serviceId: {
    tables: taskOnly,
    matcher: (_, by) => (object) => (object as Task).serviceId === by.serviceId,
    key: ({ serviceId }) => ({ field: "serviceId", value: serviceId ?? "" }),
  },
  nodeId: {
    tables: taskOnly,
    matcher: (_, by) => (object) => (object as Task).nodeId === by.nodeId,
    key: ({ nodeId }) => ({ field: "nodeId", value: nodeId ?? "" }),
  },
  slot: {
    tables: taskOnly,
    matcher:
      (_, { slot }) =>
      (object) =>
        (object as Task).serviceId === slot?.serviceId && (object as Task).slot === slot?.slot,
    key: ({ slot }) => ({ field: "serviceId", value: slot?.serviceId ?? "" }),
  },
  desiredState: {
    tables: taskOnly,
    matcher: (_, by) => (object) => (object as Task).desiredState === by.desiredState,
  },
  role: { tables: nodeOnly, matcher: (_, by) => (object) => (object as Node).role === by.role },
  membership: {
    tables: nodeOnly,
    matcher: (_, by) => (object) => ((object as Node).spec?.membership ?? 0) === by.membership,
  },
  referencedNetworkId: {
    tables: withTaskSpec,
    matcher: (table, by) => (object) => usesNetwork(table, object, by.referencedNetworkId ?? ""),
  },
  referencedSecretId: {
    tables: withTaskSpec,
    matcher: (table, by) => (object) =>
      specOf(table, object)?.container?.secrets.some(({ secretId }) => secretId === by.referencedSecretId) === true,
  },
  referencedConfigId: {
    tables: withTaskSpec,
    matcher: (table, by) => (object) =>
      specOf(table, object)?.container?.configs.some(({ configId }) => configId === by.referencedConfigId) === true,
  },
  kind: {
    tables: ["resource"],
    matcher: (_, by) => (object) => (object as Resource).kind === by.kind,
    key: ({ kind }) => ({ field: "kind", value: kind ?? "" }),
  },
};
