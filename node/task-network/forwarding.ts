/**
 * A packet filter that drops what nobody lets through, as engines set the node's iptables up: what tasks send, what answers them
 * and what a published port leads to them passes behind all rules of others. Only the last word is changed, so whoever forbids it
 * above still does; policy and the tables of tasks' networks are apart from it. Rules stay when the last task has gone: there may
 * be another agent on the machine, and they let nothing through then.
 */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { agentInterfaces } from "../../actors/agent/agent-ports.ts";

const run = promisify(execFile);
/** Of `iptables`, which waits for the lock of its tables: in seconds. */
const lockWait = "5";
const timeoutMs = 30_000;

const { links, tunnels } = agentInterfaces;
const rules: readonly (readonly string[])[] = [
  ["-i", `${links}+`, "-j", "ACCEPT"],
  ["-i", `${tunnels}+`, "-o", `${links}+`, "-j", "ACCEPT"],
  ["-o", `${links}+`, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "ACCEPT"],
];

/** Rules that may be missing; none where the chain lets everything through. `listed`: what `iptables -S FORWARD` prints. */
export function missingRules(listed: string): readonly (readonly string[])[] {
  const lines = listed.split("\n").map((line) => line.trim());
  if (!lines.includes("-P FORWARD DROP")) return [];
  return rules.filter((rule) => !lines.includes(`-A FORWARD ${rule.join(" ")}`));
}

/** `iptables` or `ip6tables`, by its path; one that the kernel has no tables for keeps nothing from passing. Rejects with what it says. */
export async function letThrough(iptables: string): Promise<void> {
  const tables = (...args: string[]) => run(iptables, ["-w", lockWait, ...args], { timeout: timeoutMs });
  const listed = await tables("-S", "FORWARD").catch(() => null);
  for (const rule of missingRules(listed?.stdout ?? "")) {
    // Not every version prints a rule as it was written.
    const isThere = await tables("-C", "FORWARD", ...rule).then(
      () => true,
      () => false,
    );
    if (!isThere) await tables("-A", "FORWARD", ...rule);
  }
}
