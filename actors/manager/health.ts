/** SwarmKit's Health service: reports whether this manager makes progress, not whether its process runs. */
import {
  HealthCheckResponse,
  HealthCheckResponse_ServingStatus as ServingStatus,
  type HealthService,
} from "../../proto/gen/messages.ts";
import { RpcError, Status, type ServiceHandlers } from "../../runtime/ports/rpc.ts";

/** Service names that managers of a swarm check on each other, and the empty one for the server as a whole. */
const services: ReadonlySet<string> = new Set(["", "Raft", "ControlAPI"]);

export function createHealth(isHealthy: () => boolean): { readonly handlers: ServiceHandlers<typeof HealthService> } {
  return {
    handlers: {
      Check: ({ service }) => {
        if (!services.has(service)) throw new RpcError(Status.NOT_FOUND, "unknown service");
        return HealthCheckResponse.create({ status: isHealthy() ? ServingStatus.SERVING : ServingStatus.NOT_SERVING });
      },
    },
  };
}
