/** The tables of the store: fields of StoreObject. */
import type { StoreObject } from "./gen/messages.ts";

/** In the order of Kind, which is also the order of snapshots and hashes. */
export const tableNames = [
  "node",
  "service",
  "network",
  "task",
  "cluster",
  "secret",
  "resource",
  "extension",
  "config",
  "volume",
  "session",
  "manager",
  "rollout",
  "user",
  "format",
] as const satisfies readonly (keyof StoreObject)[];

export type TableName = (typeof tableNames)[number];
