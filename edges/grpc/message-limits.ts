/** Maximum size of a request, by method. Beyond: RESOURCE_EXHAUSTED, as soon as its length is read. */
import {
  CAService,
  DispatcherService,
  LogBrokerService,
  NetworksService,
  NodeCAService,
  PolicyService,
  ResourceAllocatorService,
  TaskCallsService,
  UserCertificatesService,
} from "../../proto/gen/messages.ts";

/** The limit of SwarmKit's managers (docs/reference/swarm-worker-protocol.md §8.1) and grpc-go's default, in bytes. */
export const messageBytesMaxDefault = 4 * 1024 * 1024;
/** For requests such as an id or two, a certificate request, or a container's addresses; in bytes. */
const smallRequestBytesMax = 64 * 1024;

const { Heartbeat, Tasks, Assignments } = DispatcherService.methods;

const small: ReadonlySet<string> = new Set(
  [
    Heartbeat,
    Tasks,
    Assignments,
    LogBrokerService.methods.ListenSubscriptions,
    NetworksService.methods.Follow,
    PolicyService.methods.Follow,
    TaskCallsService.methods.Listen,
    ...Object.values(CAService.methods),
    ...Object.values(NodeCAService.methods),
    ...Object.values(ResourceAllocatorService.methods),
    ...Object.values(UserCertificatesService.methods),
  ].map(({ path }) => path),
);

/** In bytes. */
export function requestBytesMax(path: string): number {
  return small.has(path) ? smallRequestBytesMax : messageBytesMaxDefault;
}
