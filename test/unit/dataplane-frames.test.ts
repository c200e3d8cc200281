// The frames and messages on a dataplane driver's pipes: golden vectors, any split of the bytes, and invalid input.
import test from "ava";
import { FrameError, FrameReader, frameOf } from "../../edges/dataplane/frames.ts";
import { FromDataplane, ToDataplane } from "../../proto/gen/felix.ts";

/** docs/reference/felix-dataplane-protocol.md §12. */
const toDriver: Readonly<Record<string, object>> = {
  "0a00": { inSync: {} },
  "0a007805": { inSync: {}, sequenceNumber: 5 },
  "6a190a170a0f496e74657266616365507265666978120463616c69": { configUpdate: { config: { InterfacePrefix: "cali" } } },
  "121a0a05733a616263120831302e302e302e311207666430303a3a317801": {
    ipsetUpdate: { id: "s:abc", members: ["10.0.0.1", "fd00::1"] },
    sequenceNumber: 1,
  },
  "2a2e0a040a02703112260a1b0a05616c6c6f771a0512037463703a04085010505205733a61626312070a05616c6c6f777802": {
    activeProfileUpdate: {
      id: { name: "p1" },
      profile: {
        inboundRules: [
          { action: "allow", protocol: { name: "tcp" }, dstPorts: [{ first: 80, last: 80 }], srcIpSetIds: ["s:abc"] },
        ],
        outboundRules: [{ action: "allow" }],
      },
    },
    sequenceNumber: 2,
  },
  "5a340a0f12036b38731a0277312204657468302a210a06616374697665120563616c6931220270312a0c31302e36352e302e322f33327803": {
    workloadEndpointUpdate: {
      id: { orchestratorId: "k8s", workloadId: "w1", endpointId: "eth0" },
      endpoint: { state: "active", name: "cali1", profileIds: ["p1"], ipv4Nets: ["10.65.0.2/32"] },
    },
    sequenceNumber: 3,
  },
  "1a1b0a05733a616263120831302e302e302e321a0831302e302e302e317804": {
    ipsetDeltaUpdate: { id: "s:abc", addedMembers: ["10.0.0.2"], removedMembers: ["10.0.0.1"] },
    sequenceNumber: 4,
  },
  "22070a05733a61626378ac02": { ipsetRemove: { id: "s:abc" }, sequenceNumber: 300 },
  "3a3a0a0e0a0764656661756c741203706f6c12280a260a0464656e7910041a0208014a020808ba060a31302e302e302e302f38d2060608e80710d00f7806":
    {
      activePolicyUpdate: {
        id: { tier: "default", name: "pol" },
        policy: {
          inboundRules: [
            {
              action: "deny",
              ipVersion: "IPV4",
              protocol: { number: 1 },
              icmpTypeCode: { type: 8 },
              notSrcNet: ["10.0.0.0/8"],
              notDstPorts: [{ first: 1000, last: 2000 }],
            },
          ],
        },
      },
      sequenceNumber: 6,
    },
  "3a1e0a0e0a0764656661756c741203706f6c120c0a0a1a06120469636d7040007807": {
    activePolicyUpdate: {
      id: { tier: "default", name: "pol" },
      policy: { inboundRules: [{ protocol: { name: "icmp" }, icmpType: 0 }] },
    },
    sequenceNumber: 7,
  },
  "4a310a091207657468302d65701a240a0465746830120270311a0e0a0764656661756c741203706f6c220831302e302e302e357808": {
    hostEndpointUpdate: {
      id: { endpointId: "eth0-ep" },
      endpoint: {
        name: "eth0",
        profileIds: ["p1"],
        tiers: [{ name: "default", ingressPolicies: [Buffer.from("pol").toString("base64")] }],
        expectedIpv4Addrs: ["10.0.0.5"],
      },
    },
    sequenceNumber: 8,
  },
  "720f0a02683112093139322e302e322e317809": {
    hostMetadataUpdate: { hostname: "h1", ipv4Addr: "192.0.2.1" },
    sequenceNumber: 9,
  },
  "780a8201200a0c31302e36352e302e302d313612100a0c31302e36352e302e302f31361001": {
    ipamPoolUpdate: { id: "10.65.0.0-16", pool: { cidr: "10.65.0.0/16", masquerade: true } },
    sequenceNumber: 10,
  },
  "62110a0f12036b38731a027731220465746830780b": {
    workloadEndpointRemove: { id: { orchestratorId: "k8s", workloadId: "w1", endpointId: "eth0" } },
    sequenceNumber: 11,
  },
  "32060a040a027031780c": { activeProfileRemove: { id: { name: "p1" } }, sequenceNumber: 12 },
};

const toMain: Readonly<Record<string, object>> = {
  "1a1f0a14323031362d31312d30335430303a30303a30305a11000000000000f83f": {
    processStatusUpdate: { isoTimestamp: "2016-11-03T00:00:00Z", uptime: 1.5 },
  },
  "32170a0f12036b38731a02773122046574683012040a0275704001": {
    workloadEndpointStatusUpdate: {
      id: { orchestratorId: "k8s", workloadId: "w1", endpointId: "eth0" },
      status: { status: "up" },
    },
    sequenceNumber: 1,
  },
  "22130a091207657468302d657012060a04646f776e4002": {
    hostEndpointStatusUpdate: { id: { endpointId: "eth0-ep" }, status: { status: "down" } },
    sequenceNumber: 2,
  },
  "3a110a0f12036b38731a0277312204657468304003": {
    workloadEndpointStatusRemove: { id: { orchestratorId: "k8s", workloadId: "w1", endpointId: "eth0" } },
    sequenceNumber: 3,
  },
};

const bytes = (hex: string): Buffer => Buffer.from(hex, "hex");

for (const [hex, json] of Object.entries(toDriver)) {
  test(`main's ${hex.slice(0, 24)} is read and written as other implementations do`, (t) => {
    const message = ToDataplane.decode(bytes(hex));
    t.deepEqual(ToDataplane.toJson(message), ToDataplane.toJson(ToDataplane.fromJson(json)));
    t.deepEqual(ToDataplane.decode(ToDataplane.encode(ToDataplane.fromJson(json))), message);
  });
}

for (const [hex, json] of Object.entries(toMain)) {
  test(`a driver's ${hex.slice(0, 24)} is read and written as other implementations do`, (t) => {
    t.deepEqual(FromDataplane.toJson(FromDataplane.decode(bytes(hex))), json as never);
    t.is(Buffer.from(FromDataplane.encode(FromDataplane.fromJson(json))).toString("hex"), hex);
  });
}

test("an ICMP type of zero differs from none", (t) => {
  const hex = "3a1e0a0e0a0764656661756c741203706f6c120c0a0a1a06120469636d7040007807";
  const [rule] = ToDataplane.decode(bytes(hex)).activePolicyUpdate?.policy?.inboundRules ?? [];
  t.is(rule?.icmpType, 0);
  t.is(rule?.icmpTypeCode, null);
});

test("a frame has its length in eight bytes, little-endian, and the length counts only the body", (t) => {
  t.is(frameOf(new Uint8Array(27)).subarray(0, 8).toString("hex"), "1b00000000000000");
  t.is(frameOf(new Uint8Array(27)).length, 35);
  t.is(frameOf(new Uint8Array(0)).toString("hex"), "0000000000000000");
});

const bodies = Object.keys(toDriver).map(bytes);
const stream = Buffer.concat([...bodies, Buffer.alloc(0)].map(frameOf));

test("frames are assembled from any two pieces, from single bytes, and from one piece", (t) => {
  const expected = [...bodies, Buffer.alloc(0)];
  for (let cut = 0; cut <= stream.length; cut++) {
    const reader = new FrameReader();
    t.deepEqual([...reader.push(stream.subarray(0, cut)), ...reader.push(stream.subarray(cut))], expected);
    t.true(reader.isBetween);
  }
  const reader = new FrameReader();
  t.deepEqual(
    [...stream].flatMap((byte) => reader.push(Uint8Array.of(byte))),
    expected,
  );
});

test("a large frame that arrives byte by byte costs no object for each byte", (t) => {
  const reader = new FrameReader();
  const frame = frameOf(new Uint8Array(200_000).fill(7));
  const found = [...frame].flatMap((byte) => reader.push(Uint8Array.of(byte)));
  t.is(found.length, 1);
  t.is(found[0]?.length, 200_000);
  t.true(found[0]?.every((byte) => byte === 7));
});

test("F1: a length over the limit is rejected before memory is allocated for it, and so is all that follows", (t) => {
  for (const length of [2n ** 40n, 2n ** 64n - 1n, 1_001n]) {
    const reader = new FrameReader(1_000);
    const header = Buffer.alloc(8);
    header.writeBigUInt64LE(length);
    t.throws(() => reader.push(header), { instanceOf: FrameError });
    t.throws(() => reader.push(frameOf(new Uint8Array(1))), { instanceOf: FrameError });
  }
  t.is(new FrameReader(1_000).push(frameOf(new Uint8Array(1_000))).length, 1);
});

test("a stream that ends inside a frame is recognised", (t) => {
  for (const cut of [1, 7, 8, 9]) {
    const reader = new FrameReader();
    reader.push(stream.subarray(0, cut));
    t.false(reader.isBetween);
  }
});
