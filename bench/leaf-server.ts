/** A site's leaf node of NATS, configured as docs/sites.md says. */
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { findBinary } from "../runtime/nats/server-binary.ts";
import type { MusterPeer } from "./peers.ts";

const given = fileURLToPath(new URL("../deploy/nats-leaf.conf", import.meta.url));

export interface LeafServer {
  readonly site: string;
  /** For the site's nodes. */
  readonly url: string;
  readonly pid: number;
  stop(): void;
}

interface LeafOptions {
  readonly site: string;
  /** Where the site's nodes connect, on loopback. */
  readonly port: number;
  /** `HOST:PORT` of the manager's `--listen-leaf-nodes`. */
  readonly manager: string;
  /** The start of the command line that execs it, in the network of the site; default: this one. */
  readonly inside?: readonly string[];
}

export async function startLeaf(
  peer: MusterPeer,
  { inside = [], manager, port, site }: LeafOptions,
): Promise<LeafServer> {
  const [program = "", ...rest] = peer.commandLine;
  const muster = (...args: readonly string[]): string =>
    execFileSync(program, [...rest, ...args], { encoding: "utf8" }).trim();
  const dir = mkdtempSync(join(tmpdir(), "muster-leaf-"));
  const [ca, config] = [join(dir, "muster-ca.pem"), join(dir, "nats-leaf.conf")];
  writeFileSync(ca, muster("ca"));
  const filled = readFileSync(given, "utf8")
    .replace("lab-1", `${site}-1`)
    .replace("0.0.0.0:4222", `127.0.0.1:${port}`)
    .replace("tls://lab:PASSWORD@192.0.2.1:7422", `tls://${site}:${muster("token", "site", site)}@${manager}`)
    .replace("/etc/nats/muster-ca.pem", ca);
  writeFileSync(config, filled, { mode: 0o600 });
  const { binary } = await findBinary(undefined);
  const [file, ...args] = [...inside, binary, "-c", config];
  const child = spawn(file, args, { stdio: "ignore" });
  const stop = (): void => {
    child.kill("SIGTERM");
    rmSync(dir, { recursive: true, force: true });
  };
  return { site, url: `nats://127.0.0.1:${port}`, pid: child.pid ?? 0, stop };
}
