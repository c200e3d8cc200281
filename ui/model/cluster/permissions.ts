/** Actions by role. The server decides (`edges/grpc/roles.ts`); a test compares this list with it. */

const roles = ["read-only", "operator", "admin"] as const;
type Role = (typeof roles)[number];

/** Actions that the page offers, with the lowest role that may perform them. */
export const neededRoles = {
  createService: "operator",
  updateService: "operator",
  removeService: "operator",
  controlRollout: "operator",
  createNetwork: "operator",
  removeNetwork: "operator",
  openTerminal: "operator",
  updateNode: "admin",
} as const satisfies Readonly<Record<string, Role>>;

export type Action = keyof typeof neededRoles;

/** False for an unknown role. */
export function may(role: string, action: Action): boolean {
  return roles.findIndex((each) => each === role) >= roles.indexOf(neededRoles[action]);
}
