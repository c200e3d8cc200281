/** What is done to the network of one machine: packets that are dropped, or come late. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Place } from "./place.ts";

const late = fileURLToPath(new URL("late-packets.py", import.meta.url));
/** Of our rules, in the machine's own network. */
const table = "inet chaos";

export type Direction = "both" | "in" | "out";

function run(file: string, ...args: readonly string[]): void {
  execFileSync(file, args, { stdio: ["ignore", "ignore", "pipe"] });
}

/** Gives nft in the machine's own network these commands. */
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

/** Drops what passes between a machine and others, both ways or only what it gets, or only what it sends. */
export function cut(place: Place, others: readonly Place[], direction: Direction): void {
  const addresses = `{ ${others.map(({ machine }) => machine.address).join(", ")} }`;
  setRules(place, [
    ...(direction === "out" ? [] : [`input ip saddr ${addresses} drop`]),
    ...(direction === "in" ? [] : [`output ip daddr ${addresses} drop`]),
  ]);
}

/** Drops that share (0 to 1) of what it sends and gets. */
export function lose(place: Place, share: number): void {
  const drop = `numgen random mod 1000 < ${Math.round(share * 1_000)} drop`;
  setRules(place, [`input ${drop}`, `output ${drop}`]);
}

/** Ends both of these. */
export function mend(place: Place): void {
  nft(place, `delete table ${table}\n`);
}

/** Why packets cannot be kept back here; null when they can. */
export function delayMissing(): string | null {
  try {
    execFileSync("python3", ["--version"], { stdio: "ignore" });
    return null;
  } catch {
    return "needs python3";
  }
}

/**
 * Keeps back each packet that the machine sends or gets, in order, for `ms` and up to `jitterMs` more. A process takes the
 * place of its link to the bridge, since not every kernel has a queue that does so. Resolves with what ends it.
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
