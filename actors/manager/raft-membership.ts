/**
 * Answers an engine that joined with the manager's token and asks to be a SwarmKit manager. The error says what to do instead;
 * without it, the engine would report an unknown service.
 */
import type { RaftMembershipService } from "../../proto/gen/messages.ts";
import { RpcError, Status, type ServiceHandlers } from "../../runtime/ports/rpc.ts";

const sentence =
  "a Docker Engine cannot be a manager of this cluster: join it with the worker's token; " +
  "a manager is a separate process, started with 'muster manager --join'";

export const raftMembership: ServiceHandlers<typeof RaftMembershipService> = {
  Join() {
    throw new RpcError(Status.FAILED_PRECONDITION, sentence);
  },
  Leave() {
    throw new RpcError(Status.FAILED_PRECONDITION, sentence);
  },
};
