/**
 * The nftables dataplane driver on a node with many endpoints, policies and members of sets: from the resync to programmed
 * rules, from a change to programmed rules, and what the rules cost a packet. Needs root; in namespaces of its own.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { Rule } from "../proto/gen/felix.ts";
import { allow, body, ports, protocol, ScriptedMain, tier, type Body } from "../test/fixtures/dataplane-main.ts";
import { addresses, canMakeNetworks, PacketLab } from "../test/fixtures/packet-lab.ts";
import { table } from "./table.ts";

interface Size {
  readonly endpoints: number;
  readonly policies: number;
  readonly members: number;
  readonly deltas: number;
  readonly packets: number;
}

const member = (index: number): string => `10.${100 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;

const rules: readonly Rule[] = [
  Rule.create({ action: "allow", protocol: protocol("udp"), dstPorts: ports(80, 443), srcIpSetIds: ["s:large"] }),
  Rule.create({ action: "allow", protocol: protocol("tcp"), dstPorts: ports(80, 443), srcNet: ["10.65.0.0/16"] }),
];

const endpoint = (index: number, { policies }: Size): Body =>
  body.workload(`w${index}`, {
    name: `cali${index}`,
    ipv4Nets: [`10.70.${index >> 8}.${index & 255}/32`],
    profileIds: ["open"],
    tiers: [tier("default", `p${index % policies}`, `p${(index * 7 + 1) % policies}`)],
  });

/** What a main of such a node sends first; `a` and `b` are there for packets. */
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

async function timed(action: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await action();
  return performance.now() - started;
}

/** `ip netns exec` and the shell become what they run. */
function residentMb(pid: number | undefined): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) / 1_024;
}

/** Flows of one packet each, from `a` to `b`: every one is looked at by every rule, none is known already. */
async function flowsPerSecond(lab: PacketLab, count: number): Promise<number> {
  const script = `import socket,sys,time
n=int(sys.argv[1]);s=time.perf_counter()
for i in range(n):
    k=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);k.bind(("",20000+i%40000));k.sendto(b"x",("${addresses.b.v4}",9));k.close()
print(n/(time.perf_counter()-s))`;
  await lab.a.reaches({ protocol: "icmp", dst: addresses.b.v4 });
  return Number(
    execFileSync("ip", ["netns", "exec", lab.a.namespace, "python3", "-c", script, String(count)], {
      encoding: "utf8",
    }),
  );
}

/** The rules that a packet from `a` to `b` meets, in plain iptables. */
function plainRules(lab: PacketLab): void {
  const run = (...args: readonly string[]): string => lab.run("iptables", "-w", ...args);
  for (const [chain, match] of [
    ["from", "-i"],
    ["to", "-o"],
  ] as const) {
    run("-N", chain);
    run("-A", "FORWARD", match, chain === "from" ? "calia" : "calib", "-j", chain);
    run("-A", chain, "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "RETURN");
    for (let policy = 0; policy < 2; policy++)
      run("-A", chain, "-p", "tcp", "-m", "multiport", "--dports", "80,443", "-s", "10.65.0.0/16", "-j", "RETURN");
    run("-A", chain, "-j", "RETURN");
  }
}

export async function dataplaneTable(short: boolean): Promise<string> {
  if (!canMakeNetworks()) return "dataplane: needs root and nftables\n";
  const full: Size = short
    ? { endpoints: 100, policies: 50, members: 5_000, deltas: 50, packets: 2_000 }
    : { endpoints: 1_000, policies: 500, members: 100_000, deltas: 100, packets: 20_000 };
  const rows: (readonly string[])[] = [];
  for (const size of [{ ...full, endpoints: Math.ceil(full.endpoints / 10) }, full]) {
    const lab = new PacketLab();
    const main = new ScriptedMain(`${lab.prefix}r`);
    try {
      const none = await flowsPerSecond(lab, size.packets);
      const messages = picture(size);
      const resync = await timed(async () => {
        main.send(body.config(), ...messages, body.inSync);
        await main.told("the last endpoint", () => main.statusOf("b") !== null);
      });
      const deltas: number[] = [];
      for (let step = 0; step < size.deltas; step++) {
        const name = `new${step}`;
        deltas.push(
          await timed(async () => {
            main.send(
              body.workload(name, {
                name: `calin${step}`,
                ipv4Nets: ["10.80.0.1/32"],
                profileIds: ["open"],
                tiers: [tier("default", "p1")],
              }),
            );
            await main.told("the change", () => main.statusOf(name) !== null);
          }),
        );
      }
      deltas.sort((x, y) => x - y);
      const at = (share: number): string => (deltas[Math.floor((deltas.length - 1) * share)] ?? 0).toFixed(1);
      const memory = residentMb(main.child.pid);
      const ours = await flowsPerSecond(lab, size.packets);
      await main.end();
      lab.run("nft", "delete", "table", "inet", "muster-policy");
      plainRules(lab);
      const plain = await flowsPerSecond(lab, size.packets);
      rows.push([
        `${size.endpoints} / ${size.policies} / ${size.members}`,
        `${resync.toFixed(0)} ms`,
        `${at(0.5)} / ${at(0.99)} ms`,
        `${memory.toFixed(0)} MB`,
        [none, plain, ours].map((rate) => `${(rate / 1_000).toFixed(1)}k`).join(" / "),
      ]);
    } finally {
      await main.end();
      lab.end();
    }
  }
  return table(
    "nftables dataplane driver",
    [
      "endpoints / policies / members",
      "resync to rules",
      "change to rules p50 / p99",
      "memory",
      "new flows/s: none / iptables / ours",
    ],
    rows,
  );
}
