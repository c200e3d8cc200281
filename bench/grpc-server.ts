/**
 * A gRPC server over TLS for the micro table, in its own process so that its memory is separate from its callers': answers
 * Heartbeat immediately and keeps Session streams open.
 *
 * Prints one JSON line with its port and what a worker needs to call it; then, for each line on its standard input, one with
 * its memory in bytes after a garbage collection (needs --expose-gc). Exits when its standard input closes.
 */
import { createInterface } from "node:readline";
import { createGrpcServer } from "../edges/grpc/server.ts";
import {
  DispatcherService,
  HeartbeatResponse,
  SessionMessage,
  UpdateTaskStatusResponse,
  UpdateVolumeStatusResponse,
} from "../proto/gen/messages.ts";
import { createKeyAndCsr, createRoot, issue, type NodeRoleName } from "../lib/pki/index.ts";
import { SystemClock } from "../runtime/system/clock.ts";
import { createTelemetry } from "../runtime/telemetry/telemetry.ts";

const organization = "bench";

const root = await createRoot();
async function identity(nodeId: string, role: NodeRoleName) {
  const { keyPem, csrPem } = await createKeyAndCsr();
  const certificatePem = await issue({
    csrPem,
    rootCertificatePem: root.certificatePem,
    rootKeyPem: root.keyPem,
    nodeId,
    role,
    organization,
    validitySeconds: 3_600,
    nowMs: Date.now(),
  });
  return { certificatePem, keyPem, rootPem: root.certificatePem };
}

const telemetry = await createTelemetry({ service: "bench", level: "silent", otlpEndpoint: undefined });
const server = createGrpcServer({ telemetry });
server.add(DispatcherService, {
  Heartbeat: () => HeartbeatResponse.create(),
  Session: (_request, sink) => sink.write(SessionMessage.create({ sessionId: "s" })),
  UpdateTaskStatus: () => UpdateTaskStatusResponse.create(),
  UpdateVolumeStatus: () => UpdateVolumeStatusResponse.create(),
  Assignments: () => {},
  Tasks: () => {},
});
const { port } = await server.listenTls({
  host: "127.0.0.1",
  port: 0,
  credentials: await identity("m1", "swarm-manager"),
  organization: () => organization,
  isRemoved: () => false,
  onChange: () => ({ unsubscribe: () => {} }),
  clock: new SystemClock(),
});
// The connections of one node are limited (`workerConnectionsMax`), so many connections need many nodes.
const workers: Awaited<ReturnType<typeof identity>>[] = [];
for (let at = 0; at < Number(process.argv[2] ?? 1); at += 1) workers.push(await identity(`w${at}`, "swarm-worker"));
process.stdout.write(`${JSON.stringify({ port, workers })}\n`);
createInterface({ input: process.stdin })
  .on("line", () => {
    globalThis.gc?.();
    const { heapUsed, rss } = process.memoryUsage();
    process.stdout.write(`${JSON.stringify({ heapUsed, rss })}\n`);
  })
  .on("close", () => process.exit(0));
