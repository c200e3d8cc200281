/** The control socket of a locked manager, which rejects everything except the lock's own methods. */
import { lockedSentence, type ManagerLock } from "../actors/keys/manager-lock.ts";
import { createGrpcServer } from "../edges/grpc/server.ts";
import {
  CAService,
  ControlService,
  HealthService,
  LockService,
  LogsService,
  OperatorService,
  WatchService,
} from "../proto/gen/messages.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import { RpcError, Status, type ServiceHandlers } from "../runtime/ports/rpc.ts";

/** Time to send the answer to the correct key, in milliseconds. */
const closeGraceMs = 1_000;

function refusing<Service extends { readonly methods: object }>(service: Service): ServiceHandlers<Service> {
  const refuse = (): never => {
    throw new RpcError(Status.FAILED_PRECONDITION, lockedSentence);
  };
  return Object.fromEntries(
    Object.keys(service.methods).map((method) => [method, refuse]),
  ) as unknown as ServiceHandlers<Service>;
}

/** Resolves once it serves. Rejects with ListenError. */
export async function serveLocked(
  lock: ManagerLock,
  controlSocket: string,
  telemetry: Telemetry,
): Promise<{ close(): Promise<void> }> {
  const server = createGrpcServer({ telemetry });
  server.add(LockService, lock.handlers);
  server.add(CAService, refusing(CAService));
  server.add(ControlService, refusing(ControlService));
  server.add(HealthService, refusing(HealthService));
  server.add(LogsService, refusing(LogsService));
  server.add(OperatorService, refusing(OperatorService));
  server.add(WatchService, refusing(WatchService));
  await server.listenUnix(controlSocket);
  return { close: () => server.close(closeGraceMs) };
}
