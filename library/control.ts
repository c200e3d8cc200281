/**
 * `import … from "muster/control"`: SwarmKit's Control and Watch, and Muster's own services, over a manager's control socket or
 * mutual TLS.
 *
 *     const manager = await connectUnix("/var/lib/muster/manager/control.sock");
 *     const { nodes } = await manager.unary(ControlService.methods.ListNodes, ListNodesRequest.create({}), { timeoutMs: 5_000 });
 */
export { connectTls, connectUnix } from "../edges/grpc/client.ts";
export { RpcError, Status, type RpcChannel } from "../runtime/ports/rpc.ts";
export * from "../proto/gen/messages.ts";
