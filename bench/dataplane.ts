/**
 * The nftables dataplane driver on a node with many endpoints, policies and members of sets: from the resync to programmed
 * rules, from a change to the kernel's confirmation, and the cost of the rules per packet. Needs root; runs in its own
 * namespaces.
 */
import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { IPSetDeltaUpdate, Rule } from "../proto/gen/felix.ts";
import { allow, body, ports, protocol, ScriptedMain, tier, type Body } from "../test/fixtures/dataplane-main.ts";
import { addresses, canMakeNetworks, PacketLab } from "../test/fixtures/packet-lab.ts";
import { table } from "./table.ts";

interface Size {
  readonly endpoints: number;
  readonly policies: number;
  readonly members: number;
  /** Of each kind. */
  readonly deltas: number;
  readonly packets: number;
}

const helper = fileURLToPath(new URL("dataplane.py", import.meta.url));
const sinkPort = 9;

const member = (index: number): string => `10.${100 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;

const rules: readonly Rule[] = [
  Rule.create({ action: "allow", protocol: protocol("udp"), dstPorts: ports(80, 443), srcIpSetIds: ["s:large"] }),
  Rule.create({ action: "allow", protocol: protocol("tcp"), dstPorts: ports(80, 443), srcNet: ["10.65.0.0/16"] }),
];

/** `shift`: selects other policies. */
const endpoint = (index: number, { policies }: Size, shift = 0): Body =>
  body.workload(`w${index}`, {
    name: `cali${index}`,
    ipv4Nets: [`10.70.${index >> 8}.${index & 255}/32`],
    profileIds: ["open"],
    tiers: [tier("default", `p${(index + shift) % policies}`, `p${(index * 7 + shift + 1) % policies}`)],
  });

/** The initial state that a main of such a node sends; packets flow between `a` and `b`. */
function picture(size: Size): readonly Body[] {
  const numbered = (count: number, make: (index: number) => Body): readonly Body[] =>
    Array.from({ length: count }, (_, index) => make(index));
  const station = (name: "a" | "b"): Body =>
    body.workload(name, {
      name: `cali${name}`,
      ipv4Nets: [`${addresses[name].v4}/32`],
      tiers: [tier("default", "p0", "p1", "last")],
    });
  return [
    body.set(
      "s:large",
      Array.from({ length: size.members }, (_, index) => member(index)),
    ),
    ...numbered(size.policies, (index) =>
      body.policy(`p${index}`, {
        inboundRules: rules,
        outboundRules: [Rule.create({ action: "allow", protocol: protocol("tcp") })],
      }),
    ),
    body.policy("last", { inboundRules: [allow], outboundRules: [allow] }),
    body.profile("open", [allow]),
    ...numbered(size.endpoints, (index) => endpoint(index, size)),
    station("a"),
    station("b"),
  ];
}

/** `ip netns exec` and the shell exec the driver, so this pid is the driver's. */
function residentMb(pid: number | undefined): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) / 1_024;
}

/** A part of the helper that prints a line from time to time. */
class Listener {
  readonly #child;
  readonly #waiting: (() => void)[] = [];
  readonly ready: Promise<void>;

  constructor(namespace: string, ...args: readonly string[]) {
    this.#child = spawn("ip", ["netns", "exec", namespace, "python3", "-u", helper, ...args], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    createInterface({ input: this.#child.stdout }).on("line", () => {
      for (const wake of this.#waiting.splice(0)) wake();
    });
    this.ready = this.next();
  }

  next(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  end(): void {
    this.#child.kill("SIGKILL");
  }
}

interface Rates {
  /** Packets a second of an established flow. */
  readonly established: number;
  /** Flows a second, of one packet each: every rule examines every packet, since none belongs to a known flow. */
  readonly flows: number;
}

function ratesIn(lab: PacketLab, count: number): Rates {
  const measure = (part: "flows" | "stream"): number =>
    Number(
      execFileSync(
        "ip",
        ["netns", "exec", lab.a.namespace, "python3", helper, part, addresses.b.v4, String(sinkPort), String(count)],
        { encoding: "utf8" },
      ),
    );
  return { established: measure("stream"), flows: measure("flows") };
}

/** The rules that a packet from `a` to `b` traverses, in plain iptables. */
function plainRules(lab: PacketLab): void {
  const run = (...args: readonly string[]): string => lab.run("iptables", "-w", ...args);
  for (const [chain, match] of [
    ["from", "-i"],
    ["to", "-o"],
  ] as const) {
    run("-N", chain);
    run("-A", "FORWARD", match, chain === "from" ? "calia" : "calib", "-j", chain);
    run("-A", chain, "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "RETURN");
    run("-A", chain, "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP");
    for (let policy = 0; policy < 2; policy++) {
      if (chain === "from") run("-A", chain, "-p", "tcp", "-j", "RETURN");
      else
        for (const [protocolName, net] of [
          ["udp", "10.100.0.0/14"],
          ["tcp", "10.65.0.0/16"],
        ] as const)
          run("-A", chain, "-p", protocolName, "-m", "multiport", "--dports", "80,443", "-s", net, "-j", "RETURN");
    }
    run("-A", chain, "-j", "RETURN");
  }
}

/** Milliseconds of each change, from the message to the kernel's confirmation. */
async function changes(main: ScriptedMain, commits: Listener, list: readonly Body[]): Promise<readonly number[]> {
  const times: number[] = [];
  for (const change of list) {
    const next = commits.next();
    const begun = performance.now();
    main.send(change);
    await next;
    times.push(performance.now() - begun);
  }
  return times.toSorted((x, y) => x - y);
}

const atShare = (times: readonly number[], share: number): string =>
  (times[Math.floor((times.length - 1) * share)] ?? 0).toFixed(1);
const shown = (times: readonly number[]): string => `${atShare(times, 0.5)} / ${atShare(times, 0.99)} ms`;

async function measured(size: Size): Promise<readonly string[]> {
  const lab = new PacketLab();
  const sink = new Listener(lab.b.namespace, "sink", String(sinkPort));
  const main = new ScriptedMain(`${lab.prefix}r`);
  let commits: Listener | null = null;
  try {
    await sink.ready;
    const none = ratesIn(lab, size.packets);
    const begun = performance.now();
    main.send(body.config(), ...picture(size), body.inSync);
    await main.told("the last endpoint", () => main.statusOf("b") !== null);
    const resyncMs = performance.now() - begun;
    commits = new Listener(`${lab.prefix}r`, "generations");
    await commits.ready;
    const each = (make: (step: number) => Body): readonly Body[] =>
      Array.from({ length: size.deltas }, (_, step) => make(step));
    const policies = await changes(
      main,
      commits,
      each((step) => endpoint(step % size.endpoints, size, step + 1)),
    );
    const members = await changes(
      main,
      commits,
      each((step) => ({
        ipsetDeltaUpdate: IPSetDeltaUpdate.create({ id: "s:large", addedMembers: [`10.99.0.${step}`] }),
      })),
    );
    const endpoints = await changes(
      main,
      commits,
      each((step) => endpoint(size.endpoints + step, size)),
    );
    const memory = residentMb(main.child.pid);
    const ours = ratesIn(lab, size.packets);
    await main.end();
    lab.run("nft", "delete", "table", "inet", "muster-policy");
    plainRules(lab);
    const plain = ratesIn(lab, size.packets);
    const rates = (of: keyof Rates): string =>
      [none, plain, ours].map((each) => `${(each[of] / 1_000).toFixed(1)}k`).join(" / ");
    return [
      `${size.endpoints} / ${size.policies} / ${size.members}`,
      `${resyncMs.toFixed(0)} ms`,
      shown(policies),
      shown(members),
      shown(endpoints),
      `${memory.toFixed(0)} MB`,
      rates("established"),
      rates("flows"),
    ];
  } finally {
    commits?.end();
    sink.end();
    await main.end();
    lab.end();
  }
}

export async function dataplaneTable(short: boolean): Promise<string> {
  if (!canMakeNetworks()) return "dataplane: needs root and nftables\n";
  const rows: (readonly string[])[] = [];
  for (const endpoints of short ? [10, 100] : [100, 1_000, 5_000])
    rows.push(
      await measured(
        short
          ? { endpoints, policies: 50, members: 5_000, deltas: 10, packets: 2_000 }
          : { endpoints, policies: 500, members: 100_000, deltas: 100, packets: 20_000 },
      ),
    );
  return table(
    "nftables dataplane driver",
    [
      "endpoints / policies / members",
      "resync to rules",
      "change of an endpoint's policies p50 / p99",
      "new set member p50 / p99",
      "new endpoint p50 / p99",
      "memory",
      "packets/s of a flow: no rules / iptables / ours",
      "new flows/s: no rules / iptables / ours",
    ],
    rows,
  );
}
