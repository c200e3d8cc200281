/** An error as text for people, with the gRPC status name if it came from a peer. */
import { RpcError, Status } from "../runtime/ports/rpc.ts";

const names = new Map<number, string>(Object.entries(Status).map(([name, code]) => [code, name]));

export function sentence(error: unknown): string {
  if (error instanceof RpcError) return `${names.get(error.code) ?? error.code}: ${error.message}`;
  return error instanceof Error ? error.message : String(error);
}
