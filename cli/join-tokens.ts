/** The tokens with which nodes join, by the role that they get. */
import { KeyRotation } from "../proto/gen/messages.ts";
import { updateCluster } from "./cluster-update.ts";
import { UsageError } from "./command.ts";
import { cluster, type ManagerClient } from "./manager-client.ts";
import { UserError } from "./user-error.ts";

export type JoinRole = "worker" | "manager";

/** The role that a command's operand names; `verb`: the command, for its error. */
export function joinRole(operand: string | undefined, verb: string): JoinRole {
  if (operand === "worker" || operand === "manager") return operand;
  throw new UsageError(`'muster ${verb}' takes worker or manager, not '${operand}'`);
}

/** Makes a new token; nobody joins with the one before any more. */
export async function rotateJoinToken(client: ManagerClient, role: JoinRole): Promise<void> {
  const rotation = KeyRotation.create({ workerJoinToken: role === "worker", managerJoinToken: role === "manager" });
  await updateCluster(client, { rotation });
}

export async function joinTokenOf(client: ManagerClient, role: JoinRole): Promise<string> {
  const token = (await cluster(client)).rootCa?.joinTokens?.[role] ?? "";
  if (token === "")
    throw new UserError(
      `the manager shows no ${role} token: leave out --at, which never shows one; if there is none, make one with --rotate`,
    );
  return token;
}
