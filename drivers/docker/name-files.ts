/**
 * /etc/hosts and /etc/resolv.conf of a container in a network that others share: its engine would give it those of the container
 * that holds the network, so files of its own lie over them. Elsewhere its engine makes them.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { TaskRequest } from "../../edges/plugin/server/index.ts";
import { NetworkIsolationSpec_NetworkIsolationMode as Isolation, type TaskConfig } from "../../proto/gen/nomad.ts";
import { nodeResolver, resolvConf, resolvConfPath } from "../../node/task-network/resolv-conf.ts";
import { replaceFileSync } from "../../runtime/system/whole-file.ts";
import type { DockerConfig } from "./fields.ts";

/** An address of the engine's own, which it puts in itself. */
const engineAddress = "host-gateway";
/** As engines write them. */
const standardHosts = [
  "127.0.0.1\tlocalhost",
  "::1\tlocalhost ip6-localhost ip6-loopback",
  "fe00::0\tip6-localnet",
  "ff00::0\tip6-mcastprefix",
  "ff02::1\tip6-allnodes",
  "ff02::2\tip6-allrouters",
];

export interface NameFile {
  /** On the node; the target is the container's. */
  readonly path: string;
  readonly target: string;
}

/** What is asked of the resolver: the container's own configuration before what the host says. */
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
      throw new Error(`${name} cannot stand for ${engineAddress}: the container is in no network of its engine`);
    if (!/^\S+$/.test(name) || !/^\S+$/.test(to)) throw new Error(`'${entry}' is not name:address`);
    lines.push(`${to}\t${name}`);
  }
  return lines.map((line) => `${line}\n`).join("");
}

/** Writes what the task needs, into its directory; none where the engine does it. Throws with a sentence. */
export function writeNameFiles({ config, task }: TaskRequest<DockerConfig>): readonly NameFile[] {
  if (task.networkIsolationSpec?.mode !== Isolation.GROUP) return [];
  const dns = dnsOf(config, task);
  const hasDns = dns.servers.length + dns.searches.length + dns.options.length > 0;
  const hasHosts = config.extra_hosts.length > 0 || task.networkIsolationSpec.hostsConfig !== null;
  const texts: (readonly [target: string, text: string])[] = [];
  if (hasHosts) texts.push(["/etc/hosts", hostsText(config, task)]);
  if (hasDns) texts.push([resolvConfPath, resolvConf(dns, nodeResolver(true))]);
  if (texts.length === 0) return [];
  if (task.allocDir === "") throw new Error("a task without a directory cannot have names of its own");
  const folder = join(task.allocDir, task.name, "etc");
  mkdirSync(folder, { recursive: true });
  return texts.map(([target, text]) => {
    const path = join(task.allocDir, task.name, target);
    replaceFileSync(path, text, { mode: 0o644 });
    return { path, target };
  });
}
