/** The roles of users. The store keeps them as `UserRole`; `actors/json/user-records.ts` maps one to the other. */

/** Each role includes those before it; `read-only` sees everything except secrets. */
export type Role = "read-only" | "operator" | "admin";

const ranks: Record<Role, number> = { "read-only": 0, operator: 1, admin: 2 };

/** Whether a role includes another. */
export function isAtLeast(role: Role, needed: Role): boolean {
  return ranks[role] >= ranks[needed];
}
