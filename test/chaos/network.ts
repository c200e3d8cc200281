/** Network faults of one machine: packets that are dropped or delayed. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Place } from "./place.ts";

const late = fileURLToPath(new URL("late-packets.py", import.meta.url));
/** The nft table of our rules, in the machine's own network. */
const table = "inet chaos";

export type Direction = "both" | "in" | "out";

function run(file: string, ...args: readonly string[]): void {
  execFileSync(file, args, { stdio: ["ignore", "ignore", "pipe"] });
}

/** Runs nft commands in the machine's own network. */
function nft({ machine }: Place, commands: string): void {
  const [enter = "", ...args] = machine.inside;
  execFileSync(enter, [...args, "nft", "-f", "-"], { input: commands, stdio: ["pipe", "ignore", "pipe"] });
}

/** Each rule begins with its chain. */
function setRules(place: Place, rules: readonly string[]): void {
  const chains = ["input", "output"].map((hook) => {
    const own = rules.filter((rule) => rule.startsWith(hook)).map((rule) => rule.slice(hook.length));
    return `chain ${hook} { type filter hook ${hook} priority -300\n${own.join("\n")}\n}`;
  });
  nft(place, `table ${table} {\n${chains.join("\n")}\n}\n`);
}

/** Drops packets between a machine and others: in both directions, or only incoming or outgoing ones. */
export function cut(place: Place, others: readonly Place[], direction: Direction): void {
  const addresses = `{ ${others.map(({ machine }) => machine.address).join(", ")} }`;
  setRules(place, [
    ...(direction === "out" ? [] : [`input ip saddr ${addresses} drop`]),
    ...(direction === "in" ? [] : [`output ip daddr ${addresses} drop`]),
  ]);
}

/** Drops this share (0 to 1) of the packets that it sends and receives. */
export function lose(place: Place, share: number): void {
  const drop = `numgen random mod 1000 < ${Math.round(share * 1_000)} drop`;
  setRules(place, [`input ${drop}`, `output ${drop}`]);
}

/** Removes both kinds of fault. */
export function heal(place: Place): void {
  nft(place, `delete table ${table}\n`);
}

/** Why packets cannot be delayed here; null if they can. */
export function delayMissing(): string | null {
  try {
    execFileSync("python3", ["--version"], { stdio: "ignore" });
    return null;
  } catch {
    return "needs python3";
  }
}

/**
 * Delays each packet that the machine sends or receives, in order, by `ms` plus up to `jitterMs`. A process replaces its link
 * to the bridge, since not every kernel has a delaying queue. Resolves with a function that ends the delay.
 */
export async function delay(place: Place, ms: number, jitterMs: number): Promise<() => Promise<void>> {
  const { port } = place.machine;
  const [bridgeEnd, ownEnd] = [`${port}b`, `${port}o`];
  run("ip", "link", "add", bridgeEnd, "type", "veth", "peer", "name", ownEnd);
  for (const end of [ownEnd, bridgeEnd]) run("ip", "link", "set", end, "arp", "off", "up");
  const child: ChildProcess = spawn("python3", ["-u", late, port, ownEnd, String(ms), String(jitterMs)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (child.stdout !== null) await once(child.stdout, "data");
  run("ip", "link", "set", port, "nomaster", "arp", "off");
  run("ip", "link", "set", bridgeEnd, "master", "br0");
  return async () => {
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
    run("ip", "link", "del", bridgeEnd);
    run("ip", "link", "set", port, "master", "br0", "arp", "on");
  };
}
