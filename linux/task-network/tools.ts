/** iproute2 and nftables as an agent's tools for the networks of its tasks; each call starts one process. */
import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { readdir, readlink, realpath, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { NetworkTools } from "../../actors/agent/ports.ts";
import { findOnPath } from "../system-tools.ts";
import { Nft } from "../nft.ts";
import { allowForwarding } from "./forwarding.ts";
import { findTunnel, smallestMtu, usualMtu } from "./look.ts";

/** Where `ip netns` keeps namespaces. */
const namespaces = "/run/netns";
/** Searched after the agent's own PATH, which may lack root's folders. */
const systemPath = "/usr/sbin:/usr/bin:/sbin:/bin";
/** A batch takes some milliseconds: a hanging `ip` must not block all tasks forever. */
const timeoutMs = 30_000;
/** The first lines contain the error. */
const errorOutputMax = 400;

interface Programs {
  readonly bridge: string;
  readonly ip: string;
  readonly nsenter: string;
}

const run = promisify(execFile);

/** Tests whether this process may create namespaces and links, in a namespace that is discarded afterwards. */
async function findPrograms(searchPath: string): Promise<Programs | string> {
  if (process.getuid?.() !== 0) return "the agent does not run as root";
  const find = (name: string): string | null => findOnPath(name, `${searchPath}:${systemPath}`);
  const [ip, bridge, nsenter, unshare] = [find("ip"), find("bridge"), find("nsenter"), find("unshare")];
  if (ip === null || bridge === null) return "there is no ip or bridge (iproute2) on this node";
  if (nsenter === null || unshare === null) return "there is no nsenter or unshare (util-linux) on this node";
  try {
    const probe = ["--net", ip, "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"];
    await run(unshare, probe, { timeout: timeoutMs });
  } catch (error) {
    return `the kernel does not let the agent create namespaces and links: ${errorOutputOf(error)}`;
  }
  const tables = await new Nft().apply("");
  if (tables.kind === "failed") return `nftables cannot be used: ${tables.reason}`;
  return { bridge, ip, nsenter };
}

function errorOutputOf(error: unknown): string {
  const { message, stderr = "" } = error as Error & { readonly stderr?: string };
  return (stderr.trim() || message).slice(0, errorOutputMax);
}

/** `dataDir`: of the agent that uses the tools. */
export async function openNetworkTools(dataDir: string, searchPath: string): Promise<NetworkTools> {
  const tag = createHash("sha256")
    .update(await realpath(dataDir))
    .digest("hex")
    .slice(0, 8);
  const found = await findPrograms(searchPath);
  const nft = new Nft();
  const filters = ["iptables", "ip6tables"].map((name) => findOnPath(name, `${searchPath}:${systemPath}`));

  function batch(
    program: "bridge" | "ip",
    lines: readonly string[],
    inside: string | undefined,
    goesOn: boolean,
  ): Promise<void> {
    const { [program]: own, nsenter } = found as Programs;
    const args = [own, ...(goesOn ? ["-force"] : []), "-batch", "-"];
    const [file, ...rest] = inside === undefined ? args : [nsenter, `--net=${inside}`, "--", ...args];
    return new Promise((resolve, reject) => {
      const child = spawn(file as string, rest, { stdio: ["pipe", "ignore", "pipe"], timeout: timeoutMs });
      let errorOutput = "";
      child.stderr.on("data", (data: Buffer) => {
        if (errorOutput.length < errorOutputMax) errorOutput += data.toString();
      });
      child.on("error", reject);
      child.on("close", (code, signal) => {
        if (code === 0 || (goesOn && code !== null)) resolve();
        else
          reject(
            new Error(
              `${program}: ${errorOutput.trim().slice(0, errorOutputMax) || `ended by ${signal ?? `exit code ${code}`}`}`,
            ),
          );
      });
      // A program that has exited accepts no input: its output says why.
      child.stdin.on("error", () => {});
      child.stdin.end(lines.map((line) => `${line}\n`).join(""));
    });
  }

  return {
    problem: typeof found === "string" ? found : null,
    tag,
    async namespaces() {
      return readdir(namespaces).catch((error: NodeJS.ErrnoException) => {
        if (error.code === "ENOENT") return [];
        throw error;
      });
    },
    pathOf: (namespace) => join(namespaces, namespace),
    async pathFor(path, pid) {
      try {
        const mounts = (who: number | "self") => readlink(`/proc/${who}/ns/mnt`);
        const [own, other] = await Promise.all([mounts("self"), mounts(pid)]);
        return own === other ? path : join(`/proc/${process.pid}/root`, path);
      } catch {
        // The process has exited: whoever uses the path gets an error.
        return path;
      }
    },
    async set(values) {
      for (const [name, value] of Object.entries(values)) await writeFile(join("/proc/sys", name), value);
      for (const filter of filters) if (filter !== null) await allowForwarding(filter);
    },
    ip: (lines, { goesOn = false, inside } = {}) => batch("ip", lines, inside, goesOn),
    bridge: (lines, { goesOn = false } = {}) => batch("bridge", lines, undefined, goesOn),
    async nft(script) {
      const outcome = await nft.apply(script);
      if (outcome.kind === "failed") throw new Error(`nft: ${outcome.reason}`);
    },
    tunnel: (device) => findTunnel((found as Programs).ip, (found as Programs).bridge, device),
    mtu: typeof found === "string" ? usualMtu : await smallestMtu(found.ip),
  };
}
