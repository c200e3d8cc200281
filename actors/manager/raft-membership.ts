/**
 * What an engine asks that joined with the manager's token: to be a manager of SwarmKit's kind. It is told what to do
 * instead; without this answer it would say that a service is unknown.
 */
import type { RaftMembershipService } from "../../proto/gen/messages.ts";
import { RpcError, Status, type ServiceHandlers } from "../../runtime/rpc.ts";

const sentence =
  "a Docker Engine cannot be a manager of this cluster: join it with the worker's token; " +
  "a manager is a process of its own, which is started with 'muster manager --join'";

export const raftMembership: ServiceHandlers<typeof RaftMembershipService> = {
  Join() {
    throw new RpcError(Status.FAILED_PRECONDITION, sentence);
  },
  Leave() {
    throw new RpcError(Status.FAILED_PRECONDITION, sentence);
  },
};
