/** The origin of a change, as recorded in the log: the caller that requested it, or the part of a manager that decided it. */
import { Caller, LocalProcess, type Origin } from "../proto/gen/messages.ts";
import type { CallContext } from "../runtime/ports/rpc.ts";
import type { Environment } from "./environment.ts";

/** Longer texts are truncated: the log's records have a budget for callers. */
const textMax = 64;

/** `/docker.swarmkit.v1.Control/UpdateService` → `Control.UpdateService`. */
function methodName(path: string): string {
  const [service = "", method = ""] = path.slice(path.lastIndexOf(".") + 1).split("/");
  return `${service}.${method}`.slice(0, textMax);
}

/** Null for a call from within this process. */
export function callerOf({ peer, method }: Partial<Pick<CallContext, "peer" | "method">>): Caller | null {
  if (peer === undefined || method === undefined) return null;
  const { identity, address, process, user } = peer;
  return Caller.create({
    method: methodName(method),
    nodeId: (identity?.nodeId ?? "").slice(0, textMax),
    address: address.slice(0, textMax),
    // Set only without a certificate and a process: the budget covers one of them.
    ...(user === undefined ? {} : { user: user.slice(0, textMax) }),
    process: process === undefined ? null : LocalProcess.create({ ...process }),
  });
}

/** The same environment for one part of the manager, which writes under its name. */
export function writingAs<Env extends Pick<Environment, "proposer">>(env: Env, origin: Origin): Env {
  const { proposer } = env;
  return { ...env, proposer: { propose: (proposal) => proposer.propose({ ...proposal, origin }) } };
}
