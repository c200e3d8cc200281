/** A task's resolv.conf: what was requested, and the node's settings for everything else. */
import { readFileSync } from "node:fs";
import type { DNSConfig } from "../../proto/gen/nomad.ts";

export const resolvConfPath = "/etc/resolv.conf";
/** The upstream servers of systemd-resolved, on nodes whose programs use its local stub. */
const upstreamPath = "/run/systemd/resolve/resolv.conf";

interface Lines {
  readonly servers: readonly string[];
  readonly searches: readonly string[];
  readonly options: readonly string[];
}

/** Null if the task uses the node's. */
export function askedDns(dns: DNSConfig | null): DNSConfig | null {
  if (dns === null) return null;
  return dns.servers.length + dns.searches.length + dns.options.length === 0 ? null : dns;
}

/** For repeated lines the last one counts, as in resolvers; servers accumulate. */
function parse(text: string): Lines {
  const lines = { servers: [] as string[], searches: [] as readonly string[], options: [] as readonly string[] };
  for (const line of text.split("\n")) {
    const [key, ...values] = line
      .replace(/[#;].*$/, "")
      .trim()
      .split(/\s+/);
    if (key === "nameserver" && values[0] !== undefined) lines.servers.push(values[0]);
    if (key === "search" || key === "domain") lines.searches = values;
    if (key === "options") lines.options = values;
  }
  return lines;
}

function isLoopback(server: string): boolean {
  return server.startsWith("127.") || server === "::1";
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** `isApart`: for a task in its own network, where the node's loopback addresses are unreachable. */
export function nodeResolver(isApart: boolean, read: (path: string) => string = readOrEmpty): Lines {
  const own = parse(read(resolvConfPath));
  const servers = own.servers.filter((server) => !isLoopback(server));
  if (!isApart || servers.length === own.servers.length) return own;
  const upstream = parse(read(upstreamPath)).servers.filter((server) => !isLoopback(server));
  return { ...own, servers: servers.length > 0 ? servers : upstream };
}

/** A lone domain `.` means that none is searched. Throws for text that would add another line or word. */
export function resolvConf(requested: Lines, node: Lines): string {
  const effective = (of: keyof Lines): readonly string[] => (requested[of].length > 0 ? requested[of] : node[of]);
  const [servers, searches, options] = [effective("servers"), effective("searches"), effective("options")];
  for (const word of [...servers, ...searches, ...options])
    if (!/^[^\s#;]+$/.test(word)) throw new Error(`invalid word ${JSON.stringify(word)} for resolv.conf`);
  const domains = searches.length === 1 && searches[0] === "." ? [] : searches;
  const lines = [
    ...servers.map((server) => `nameserver ${server}`),
    ...(domains.length === 0 ? [] : [`search ${domains.join(" ")}`]),
    ...(options.length === 0 ? [] : [`options ${options.join(" ")}`]),
  ];
  return lines.map((line) => `${line}\n`).join("");
}
