/**
 * The one model of the one controller: what Juju's clients call the cluster. They want UUIDs; the cluster's id is none, so
 * that these are made of it, the same on every manager and for as long as the cluster lives.
 */
import { createHash } from "node:crypto";

/** What the model is called unless the cluster has another name. */
export const modelName = "default";
/** Owner of the model in answers: clients want one, the cluster has none. */
export const ownerTag = "user-admin";
/** Patch version of what is answered as the server's; the major version is the client's (reference §2.1). */
const serverVersions: { readonly [major: number]: string } = {
  1: "1.24.5",
  2: "2.9.31",
  3: "3.5.2",
  4: "4.0.12",
};
/** Of a client whose version there is none for. */
const defaultMajor = 3;
/** Of one that says none: clients of 3.x say theirs since 2023, python-libjuju 2.9 never has and takes no other server. */
export const silentMajor = 2;
/** A role as access to the model. */
export const modelAccess = { "read-only": "read", operator: "write", admin: "admin" } as const;

function uuid(text: string): string {
  const hex = createHash("sha256").update(text).digest("hex");
  // Version 8 of RFC 9562: made by the program's own rule.
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

/** The version that a client of that major version accepts. */
export function serverVersion(clientMajor: number): string {
  return serverVersions[clientMajor] ?? (serverVersions[defaultMajor] as string);
}
