/**
 * The cluster as the only model of the only controller. Juju's clients expect UUIDs, so these are derived from the cluster's
 * id: they are the same on every manager and for the cluster's lifetime.
 */
import { createHash } from "node:crypto";

/** The model's name if the cluster has none. */
export const modelName = "default";
/** Owner of the model: clients require one, the cluster has none. */
export const ownerTag = "user-admin";
/** Server versions by major version, which is the client's (reference §2.1). */
const serverVersions: { readonly [major: number]: string } = {
  1: "1.24.5",
  2: "2.9.31",
  3: "3.5.2",
  4: "4.0.12",
};
/** Major version reported to clients of an unknown major version. */
const defaultMajor = 3;
/**
 * Major version of clients that report none: python-libjuju 2.9, which accepts no other; clients of 3.x report theirs since
 * 2023.
 */
export const silentMajor = 2;
/** Roles in Juju's terms of model access. */
export const modelAccess = { "read-only": "read", operator: "write", admin: "admin" } as const;

function uuid(text: string): string {
  const hex = createHash("sha256").update(text).digest("hex");
  // Version 8 of RFC 9562: custom.
  const variant = ((Number.parseInt(hex.charAt(16), 16) & 3) | 8).toString(16);
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    variant + hex.slice(17, 20),
    hex.slice(20, 32),
  ].join("-");
}

export const modelUuid = (clusterId: string): string => uuid(`muster model ${clusterId}`);
export const controllerUuid = (clusterId: string): string => uuid(`muster controller ${clusterId}`);

/** The server version that a client of this major version accepts. */
export function serverVersion(clientMajor: number): string {
  return serverVersions[clientMajor] ?? (serverVersions[defaultMajor] as string);
}
