/** The nats-server that packages contain. */
import { execFileSync } from "node:child_process";
import { findBinary } from "../../runtime/nats/server-binary.ts";

/** Rejects with NatsServerProblem if there is none. */
export async function natsServer(): Promise<{ readonly path: string; readonly version: string }> {
  const { binary, version } = await findBinary(process.env["MUSTER_NATS_SERVER"]);
  // A name without a slash is looked up on PATH.
  const path = binary.includes("/")
    ? binary
    : execFileSync("sh", ["-c", 'command -v "$0"', binary], { encoding: "utf8" }).trim();
  return { path, version };
}
