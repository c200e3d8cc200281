/** Join tokens, by the role that they grant. */
import { KeyRotation } from "../proto/gen/messages.ts";
import { updateCluster } from "./cluster-update.ts";
import { cluster, type ManagerClient } from "./manager-client.ts";
import { UsageError, UserError } from "../lib/user-error.ts";

type JoinRole = "worker" | "manager";

/** Parses the role operand of the command `verb`. */
export function joinRole(operand: string | undefined, verb: string): JoinRole {
  if (operand === "worker" || operand === "manager") return operand;
  throw new UsageError(`invalid role "${operand}" for 'muster ${verb}': expected worker or manager`);
}

/** Replaces the token; nodes can no longer join with the previous one. */
export async function rotateJoinToken(client: ManagerClient, role: JoinRole): Promise<void> {
  const rotation = KeyRotation.create({ workerJoinToken: role === "worker", managerJoinToken: role === "manager" });
  await updateCluster(client, { rotation });
}

export async function joinTokenOf(client: ManagerClient, role: JoinRole): Promise<string> {
  const token = (await cluster(client)).rootCa?.joinTokens?.[role] ?? "";
  if (token === "")
    throw new UserError(
      `the manager returned no ${role} token: omit --at, which hides tokens, or create a token with --rotate`,
    );
  return token;
}
