/** Records of users and agents with a password: their ids and contents. */
import { PasswordHash, UserRole, type User } from "../../proto/gen/messages.ts";
import type { Identity, LoginName } from "../../runtime/ports/json-api.ts";
import { markOfSalt, type HashedPassword } from "../../runtime/ports/passwords.ts";
import type { Role } from "../../runtime/user-roles.ts";
import type { Store } from "../../runtime/store/store.ts";

export function recordId(name: LoginName): string {
  switch (name.kind) {
    case "user":
      return `user-${name.name}`;
    case "machine":
      return `node-${name.nodeId}`;
    case "unit":
      return `task-${name.taskId}`;
  }
}

const roles: { readonly [Each in UserRole]: Role | null } = {
  [UserRole.USER_ROLE_UNKNOWN]: null,
  [UserRole.USER_ROLE_READ_ONLY]: "read-only",
  [UserRole.USER_ROLE_OPERATOR]: "operator",
  [UserRole.USER_ROLE_ADMIN]: "admin",
  [UserRole.USER_ROLE_AGENT]: null,
};

/** Null when the user does not exist or is disabled, or the agent's node or task was removed. */
export function identityOf(store: Store, name: LoginName): Identity | null {
  switch (name.kind) {
    case "user": {
      const record = store.get("user", recordId(name));
      const role = record === undefined || record.disabled ? null : roles[record.role];
      return role === null ? null : { kind: "user", name: name.name, role };
    }
    case "machine":
      return store.get("node", name.nodeId) === undefined ? null : { kind: "machine", nodeId: name.nodeId };
    case "unit":
      return store.get("task", name.taskId) === undefined ? null : { kind: "unit", taskId: name.taskId };
  }
}

/** The mark in certificates for the user's current password; null without a password. */
export function passwordMark({ password }: User): string | null {
  return password === null || password.salt.length === 0 ? null : markOfSalt(password.salt);
}

/** The identity behind a name and the mark of its password, empty without one; null as for `identityOf`. */
export function standingOfLogin(
  store: Store,
  name: LoginName,
): { readonly identity: Identity; readonly mark: string } | null {
  const identity = identityOf(store, name);
  const record = store.get("user", recordId(name));
  return identity === null ? null : { identity, mark: (record === undefined ? null : passwordMark(record)) ?? "" };
}

/** The role of a user with a certificate of that mark; null when the mark is no longer valid. */
export function certifiedRole(store: Store, name: string, mark: string): Role | null {
  const identity = identityOf(store, { kind: "user", name });
  const record = store.get("user", recordId({ kind: "user", name }));
  if (identity?.kind !== "user" || record === undefined || mark === "" || passwordMark(record) !== mark) return null;
  return identity.role;
}

/** Whether it is the record of an agent whose node or task was removed. */
export function isLeftOver(store: Store, { id, role }: User): boolean {
  if (role !== UserRole.USER_ROLE_AGENT) return false;
  const [kind = "", ...rest] = id.split("-");
  return store.get(kind === "node" ? "node" : "task", rest.join("-")) === undefined;
}

export function passwordOf(hashed: HashedPassword): PasswordHash {
  return PasswordHash.create({ ...hashed });
}
