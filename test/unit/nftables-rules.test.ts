// How a rule of a policy becomes rules of nft, without a kernel: the notation of each criterion, and what is omitted, or
// closed, for unknown or unsupported parts.
import test from "ava";
import { HTTPMatch, IcmpTypeAndCode, IPVersion, PortRange, Protocol, Rule } from "../../proto/gen/felix.ts";
import { netText, outermost, parseNet } from "../../drivers/nftables/addresses.ts";
import { readSettings } from "../../drivers/nftables/config.ts";
import { IpSet, IpSetType, setName } from "../../drivers/nftables/ip-set.ts";
import { isInterfaceName, logPrefix, nameOf } from "../../drivers/nftables/names.ts";
import { renderRule } from "../../drivers/nftables/rule.ts";
import type { Prefix } from "../../lib/ip-address.ts";

const { settings } = readSettings({});
const types: Readonly<Record<string, IpSetType>> = {
  "s:a": IpSetType.IP,
  "n:a": IpSetType.NET,
  "p:a": IpSetType.IP_AND_PORT,
};

function render(fields: Partial<Rule>, isUntracked = false) {
  return renderRule(Rule.create(fields), { settings, isUntracked, typeOf: (id) => types[id] ?? null });
}

const lines = (fields: Partial<Rule>): readonly string[] => render(fields).lines;
const tcp = Protocol.create({ name: "tcp" });
const accept = "meta mark set meta mark or 0x1000000 return";
const range = (first: number, last: number): PortRange => PortRange.create({ first, last });

test("actions: empty means allow, both words mean pass, log continues, and an unknown one closes and is a problem", (t) => {
  t.deepEqual(lines({}), [accept]);
  t.deepEqual(lines({ action: "allow" }), [accept]);
  t.deepEqual(render({}, true).lines, [`notrack ${accept}`]);
  t.deepEqual(lines({ action: "deny" }), ["drop"]);
  for (const action of ["pass", "next-tier"])
    t.deepEqual(lines({ action }), ["meta mark set meta mark or 0x2000000 return"]);
  t.deepEqual(lines({ action: "log", logPrefix: 'x"; drop' }), ['log prefix "x__ drop: " level notice']);
  const unknown = render({ action: "explode", protocol: tcp });
  t.deepEqual(unknown.lines, ["drop"]);
  t.is(unknown.problem, 'invalid action "explode"');
});

test("addresses are matched in their family, ports after their protocol", (t) => {
  t.deepEqual(
    lines({
      protocol: tcp,
      srcNet: ["10.0.0.1/8", "10.1.0.0/16", "fd00::/8"],
      dstPorts: [range(80, 80), range(1_000, 2_000)],
    }),
    [
      `meta nfproto ipv4 meta l4proto 6 ip saddr 10.0.0.0/8 th dport { 80, 1000-2000 } ${accept}`,
      `meta nfproto ipv6 meta l4proto 6 ip6 saddr fd00:0:0:0:0:0:0:0/8 th dport { 80, 1000-2000 } ${accept}`,
    ],
  );
  t.deepEqual(lines({ dstPorts: [range(1, 3), range(2, 5), range(6, 6)] }), [
    `meta l4proto { 6, 17, 33, 132, 136 } th dport 1-6 ${accept}`,
  ]);
  t.deepEqual(lines({ ipVersion: IPVersion.IPV6, notDstNet: ["10.0.0.0/8"] }), []);
  t.deepEqual(lines({ notSrcNet: ["0.0.0.0/0"] }), []);
});

test("ICMP is matched in its own family, negated pairs as pairs", (t) => {
  const icmp = Protocol.create({ name: "icmp" });
  t.deepEqual(lines({ protocol: icmp, icmpType: 0 }), [
    `meta nfproto ipv4 meta l4proto 1 meta l4proto 1 icmp type 0 ${accept}`,
  ]);
  t.deepEqual(
    lines({ action: "deny", protocol: icmp, notIcmpTypeCode: IcmpTypeAndCode.create({ type: 8, code: 0 }) }),
    ["meta nfproto ipv4 meta l4proto 1 meta l4proto 1 icmp type . icmp code != { 8 . 0 } drop"],
  );
});

test("sets are all required, named ports are alternatives to numbers", (t) => {
  t.deepEqual(lines({ ipVersion: IPVersion.IPV4, srcIpSetIds: ["s:a", "n:a"] }), [
    `meta nfproto ipv4 ip saddr @${setName("s:a", 0, 4)} ip saddr @${setName("n:a", 2, 4)} ${accept}`,
  ]);
  t.deepEqual(
    lines({ ipVersion: IPVersion.IPV4, protocol: tcp, dstPorts: [range(1, 1)], dstNamedPortIpSetIds: ["p:a"] }),
    [
      `meta nfproto ipv4 meta l4proto 6 th dport 1 ${accept}`,
      `meta nfproto ipv4 meta l4proto 6 ip daddr . meta l4proto . th dport @${setName("p:a", 1, 4)} ${accept}`,
    ],
  );
});

test("C1: with an unknown set, rules that open are omitted, and rules that close apply without it", (t) => {
  const unknown = { ipVersion: IPVersion.IPV4, protocol: tcp } as const;
  for (const criterion of [
    { srcIpSetIds: ["s:x"] },
    { notSrcIpSetIds: ["s:x"] },
    { dstIpPortSetIds: ["s:x"] },
    { dstNamedPortIpSetIds: ["s:x"] },
    { notDstNamedPortIpSetIds: ["s:x"] },
    { dstIpSetIds: ["p:a"] },
  ]) {
    t.deepEqual(lines({ ...unknown, ...criterion, action: "allow" }), [], JSON.stringify(criterion));
    for (const action of ["deny", "pass"])
      t.regex(
        lines({ ...unknown, ...criterion, action }).join("|"),
        /^meta nfproto ipv4 meta l4proto 6( meta l4proto \S+)? drop$/,
      );
  }
});

test("C1: an unsupported rule opens nothing and closes everything", (t) => {
  const wrong: readonly Partial<Rule>[] = [
    { srcNet: ["10.0.0.0/33"] },
    { dstNet: ["10.0.0.1; accept"] },
    { notSrcNet: ["fe80::1%eth0"] },
    { protocol: Protocol.create({ name: "tcp drop" }) },
    { protocol: Protocol.create({ number: 0 }) },
    { protocol: Protocol.create() },
    { notProtocol: Protocol.create({ number: 256 }) },
    { protocol: tcp, dstPorts: [range(2, 1)] },
    { protocol: tcp, dstPorts: [range(-1, 5)] },
    { protocol: tcp, notSrcPorts: [range(1, 65_536)] },
    { icmpType: 256 },
    { notIcmpTypeCode: IcmpTypeAndCode.create({ type: 1, code: -1 }) },
    { ipVersion: 5 as never },
  ];
  for (const rule of wrong) {
    const allowing = render({ ...rule, action: "allow" });
    t.deepEqual(allowing.lines, [], JSON.stringify(rule));
    t.truthy(allowing.problem);
    for (const action of ["deny", "pass"]) t.deepEqual(lines({ ...rule, action }), ["drop"], JSON.stringify(rule));
  }
  t.deepEqual(lines({ httpMatch: HTTPMatch.create({ methods: ["GET"] }) }), []);
});

test("a drop with negated ports also applies to packets without ports, an allow does not", (t) => {
  t.deepEqual(lines({ notDstPorts: [range(22, 22)] }), [
    `meta l4proto { 6, 17, 33, 132, 136 } th dport != 22 ${accept}`,
  ]);
  t.deepEqual(lines({ action: "deny", notDstPorts: [range(22, 22)] }), [
    "meta l4proto { 6, 17, 33, 132, 136 } th dport != 22 drop",
    "meta l4proto != { 6, 17, 33, 132, 136 } drop",
  ]);
});

test("N1: no name or text escapes its token, and no two objects share a name", (t) => {
  t.regex(nameOf("pi", 'a/b"; drop}\n$(x)'), /^pi-[A-Za-z0-9_]*-[0-9a-f]{16}$/);
  t.not(nameOf("pi", "a/b"), nameOf("pi", "a_b"));
  t.true(nameOf("pi", "x".repeat(500)).length < 127);
  t.regex(logPrefix('"\\\n;{}' + "x".repeat(300)), /^"[^"\\\n]{120}"$/);
  for (const name of ["", "eth0*", 'a"b', "a b", "x".repeat(16), ".", "a/b", "a\n"])
    t.false(isInterfaceName(name), name);
  for (const name of ["eth0", "cali123.4", "vlan@7", "a-b_c"]) t.true(isInterfaceName(name), name);
});

test("addresses have one notation, however they were written", (t) => {
  const spelled = (text: string): string | null => {
    const net = parseNet(text);
    return net === null ? null : netText(net);
  };
  t.is(spelled("10.1.2.3"), "10.1.2.3");
  t.is(spelled("10.1.2.3/8"), "10.0.0.0/8");
  t.is(spelled("FD00::1"), "fd00:0:0:0:0:0:0:1");
  t.is(spelled("::"), "0:0:0:0:0:0:0:0");
  t.is(spelled("1::"), "1:0:0:0:0:0:0:0");
  t.is(spelled("::ffff:10.0.0.1"), "0:0:0:0:0:ffff:a00:1");
  for (const text of [
    "",
    "10.0.0",
    "10.0.0.256",
    "10.0.0.1/",
    "10.0.0.1/33",
    "::/129",
    "fe80::1%lo",
    "1.2.3.4/-1",
    "010.0.0.1",
  ])
    t.is(spelled(text), null, text);
  const nets = ["10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/8", "fd00::/8"].map((text) => parseNet(text) as Prefix);
  t.deepEqual(outermost(nets).map(netText).toSorted(), ["10.0.0.0/8", "11.0.0.0/8", "fd00:0:0:0:0:0:0:0/8"]);
});

test("M1: a kernel set gets only the changes since the last update, and none twice", (t) => {
  const set = new IpSet("x", IpSetType.IP);
  const change = (family: 4 | 6) => {
    const { added, removed } = set.takeChange(family);
    return { added: [...added], removed: [...removed] };
  };
  set.replace(["10.0.0.1", "10.0.0.1/32", "fd00::1", "10.0.0.2"]);
  t.deepEqual(change(4), { added: ["10.0.0.1", "10.0.0.2"], removed: [] });
  t.deepEqual(change(6), { added: ["fd00:0:0:0:0:0:0:1"], removed: [] });
  set.change(["10.0.0.3"], ["10.0.0.1", "10.9.9.9"]);
  set.change(["10.0.0.1"], ["10.0.0.3"]);
  t.deepEqual(change(4), { added: [], removed: [] });
  set.replace(["10.0.0.2", "10.0.0.4"]);
  t.deepEqual(change(4), { added: ["10.0.0.4"], removed: ["10.0.0.1"] });
  t.true(set.isUsable);
  set.change(["10.0.0.0/24"], []);
  t.false(set.isUsable);
  set.replace(["10.0.0.2"]);
  t.true(set.isUsable);
});

test("X1: only the outermost of nested networks are visible, in any order of adding and removing", (t) => {
  const texts = [
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.0/24",
    "10.1.2.3",
    "10.2.0.0/16",
    "11.0.0.0/24",
    "0.0.0.0/0",
    "fd00::/8",
    "fd01::/16",
  ];
  const set = new IpSet("x", IpSetType.NET);
  const kernel = new Set<string>();
  const members = new Set<string>();
  let seed = 7;
  for (let step = 0; step < 2_000; step++) {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    const text = texts[(seed >> 8) % texts.length] as string;
    const isIn = (seed >> 16) % 2 === 0;
    set.change(isIn ? [text] : [], isIn ? [] : [text]);
    if (isIn) members.add(text);
    else members.delete(text);
    if (step % 50 === 0) set.replace([...members].toReversed());
    for (const family of [4, 6] as const) {
      const { added, removed } = set.takeChange(family);
      for (const element of removed) t.true(kernel.delete(element));
      for (const element of added) t.false(kernel.has(element) || !kernel.add(element));
    }
    const expected = outermost([...members].map((member) => parseNet(member) as Prefix)).map(netText);
    t.deepEqual([...kernel].toSorted(), expected.toSorted());
  }
});

test("settings are parsed as Felix writes them, and unsupported ones are reported and ignored", (t) => {
  const read = readSettings({
    InterfacePrefix: "tap,veth",
    defaultendpointtohostaction: "return",
    DropActionOverride: "ACCEPT",
    IptablesMarkMask: "0x00f0",
    MetadataAddr: "none",
    FailsafeInboundHostPorts: "22,udp:53,tcp:10.0.0.0/8:179,tcp:[fd00::/8]:80",
    FailsafeOutboundHostPorts: "none",
    ReportingIntervalSecs: "1.5",
    SomethingElse: "x",
  });
  t.deepEqual(read.settings.interfacePrefixes, ["tap", "veth"]);
  t.is(read.settings.endpointToHost, "RETURN");
  t.false(read.settings.logsDrops);
  t.deepEqual(read.settings.marks, { accept: 0x10, pass: 0x20 });
  t.is(read.settings.metadata, null);
  t.deepEqual(
    read.settings.failsafeIn.map(({ protocol, net, port }) => [protocol, net?.text ?? "", port]),
    [
      [6, "", 22],
      [17, "", 53],
      [6, "10.0.0.0/8", 179],
      [6, "fd00:0:0:0:0:0:0:0/8", 80],
    ],
  );
  t.deepEqual(read.settings.failsafeOut, []);
  t.is(read.settings.reportingMs, 1_500);
  t.is(read.problems.length, 1, "an override that accepts would open the node");
  const broken = readSettings({ FailsafeInboundHostPorts: "ssh", InterfacePrefix: 'a"b', IptablesMarkMask: "0x1" });
  t.is(broken.problems.length, 3);
  t.true(broken.settings.failsafeIn.some(({ port }) => port === 22));
  t.deepEqual(broken.settings.interfacePrefixes, ["cali"]);
});
