/**
 * Lets tasks' traffic through a packet filter that drops by default, such as the iptables rules that engines set up: traffic
 * from tasks, its replies and traffic to published ports pass after all other rules. Only the default changes: an earlier rule
 * that forbids the traffic still applies, and policy and the tables of tasks' networks are independent of it. The rules stay
 * when the last task exits: there may be another agent on the machine, and without tasks they let nothing through.
 */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { agentInterfaces } from "../../actors/agent/ports.ts";

const run = promisify(execFile);
/** Seconds for which `iptables` waits for the lock of its tables. */
const lockWait = "5";
const timeoutMs = 30_000;

const { links, tunnels } = agentInterfaces;
const rules: readonly (readonly string[])[] = [
  ["-i", `${links}+`, "-j", "ACCEPT"],
  ["-i", `${tunnels}+`, "-o", `${links}+`, "-j", "ACCEPT"],
  ["-o", `${links}+`, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "ACCEPT"],
];

/** Rules that may be missing; empty if the chain accepts by default. `listed`: the output of `iptables -S FORWARD`. */
export function missingRules(listed: string): readonly (readonly string[])[] {
  const lines = listed.split("\n").map((line) => line.trim());
  if (!lines.includes("-P FORWARD DROP")) return [];
  return rules.filter((rule) => !lines.includes(`-A FORWARD ${rule.join(" ")}`));
}

/** `iptables`: path of `iptables` or `ip6tables`. Without kernel tables for it, nothing is filtered. Rejects with its error. */
export async function allowForwarding(iptables: string): Promise<void> {
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
