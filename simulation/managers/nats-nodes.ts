/** A simulated manager's service to nodes that call it over NATS. */
import { requestBytesMax } from "../../edges/grpc/message-limits.ts";
import { serveNodeLinks } from "../../runtime/calls/node-links.ts";
import type { CallGate, Service } from "../../runtime/calls/served.ts";
import type { SimPorts } from "../../runtime/sim/simulation.ts";
import { simPayloadBytesMax } from "../../runtime/sim/subjects.ts";

/** Id of the manager at an address in subjects: its name. */
export function natsManagerId(address: string): string {
  return address.split(":")[0] as string;
}

/** Serves until the process ends. */
export function serveNatsNodes(
  { clock, nodeBus: bus, random, telemetry }: SimPorts,
  address: string,
  services: readonly Service[],
  gate: CallGate,
): void {
  serveNodeLinks({
    clock,
    log: telemetry.log,
    random: random.fork("links"),
    bus,
    managerId: natsManagerId(address),
    services,
    gate,
    peerOf: (nodeId) => bus.peerOf(nodeId),
    payloadBytesMax: simPayloadBytesMax,
    requestBytesMax,
  });
}
