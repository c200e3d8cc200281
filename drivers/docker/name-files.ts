/**
 * /etc/hosts and /etc/resolv.conf of a container in a shared network: the engine would give it those of the container that
 * holds the network, so other files are mounted over them. In other networks the engine creates them.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { TaskRequest } from "../../edges/plugin/server/index.ts";
import { NetworkIsolationSpec_NetworkIsolationMode as Isolation, type TaskConfig } from "../../proto/gen/nomad.ts";
import { nodeResolver, resolvConf, resolvConfPath } from "../../linux/task-network/resolv-conf.ts";
import { replaceFileSync } from "../../runtime/system/whole-file.ts";
import type { DockerConfig } from "./fields.ts";

/** Stands for an address that only the engine can fill in. */
const engineAddress = "host-gateway";
/** The same as the engine's. */
const standardHosts = [
  "127.0.0.1\tlocalhost",
  "::1\tlocalhost ip6-localhost ip6-loopback",
  "fe00::0\tip6-localnet",
  "ff00::0\tip6-mcastprefix",
  "ff02::1\tip6-allnodes",
  "ff02::2\tip6-allrouters",
];

export interface NameFile {
  /** Path on the node; `target` is in the container. */
  readonly path: string;
  readonly target: string;
}

/** DNS settings: the container's own entries, followed by the host's. */
export function dnsOf(config: DockerConfig, { dns }: TaskConfig) {
  return {
    servers: [...config.dns_servers, ...(dns?.servers ?? [])],
    searches: [...config.dns_search_domains, ...(dns?.searches ?? [])],
    options: [...config.dns_options, ...(dns?.options ?? [])],
  };
}

function hostsText({ extra_hosts }: DockerConfig, { networkIsolationSpec }: TaskConfig): string {
  const { address = "", hostname = "" } = networkIsolationSpec?.hostsConfig ?? {};
  const lines = [...standardHosts];
  if (address !== "" && hostname !== "") lines.push(`${address}\t${hostname}`);
  for (const entry of extra_hosts) {
    const at = entry.indexOf(":");
    const [name, to] = [entry.slice(0, at), entry.slice(at + 1)];
    if (to === engineAddress)
      throw new Error(`cannot resolve ${engineAddress} for "${name}": the container is not in a network of its engine`);
    if (!/^\S+$/.test(name) || !/^\S+$/.test(to))
      throw new Error(`invalid host entry "${entry}": expected name:address`);
    lines.push(`${to}\t${name}`);
  }
  return lines.map((line) => `${line}\n`).join("");
}

/** Writes the files into the task's directory; none if the engine creates them. Throws if it cannot. */
export function writeNameFiles({ config, task }: TaskRequest<DockerConfig>): readonly NameFile[] {
  if (task.networkIsolationSpec?.mode !== Isolation.GROUP) return [];
  const dns = dnsOf(config, task);
  const hasDns = dns.servers.length + dns.searches.length + dns.options.length > 0;
  const hasHosts = config.extra_hosts.length > 0 || task.networkIsolationSpec.hostsConfig !== null;
  const texts: (readonly [target: string, text: string])[] = [];
  if (hasHosts) texts.push(["/etc/hosts", hostsText(config, task)]);
  if (hasDns) texts.push([resolvConfPath, resolvConf(dns, nodeResolver(true))]);
  if (texts.length === 0) return [];
  if (task.allocDir === "") throw new Error("cannot write the task's hosts file: the task has no directory");
  const folder = join(task.allocDir, task.name, "etc");
  mkdirSync(folder, { recursive: true });
  return texts.map(([target, text]) => {
    const path = join(task.allocDir, task.name, target);
    replaceFileSync(path, text, { mode: 0o644 });
    return { path, target };
  });
}
