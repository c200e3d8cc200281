/** The roles of users. The store keeps them as `UserRole`; `actors/json/user-records.ts` maps one to the other. */

/** Each may also do what those before it may: `read-only` sees everything but secrets. */
export type Role = "read-only" | "operator" | "admin";

const ranks: Record<Role, number> = { "read-only": 0, operator: 1, admin: 2 };

/** Whether a role includes what another one may do. */
export function isAtLeast(role: Role, needed: Role): boolean {
  return ranks[role] >= ranks[needed];
}
