// Allocated numbers, addresses, subnets and ids: never twice, never lost.
import test from "ava";
import fc from "fast-check";
import { AddressSpace } from "../../machines/allocation/addresses.ts";
import { NumberSpace } from "../../machines/allocation/numbers.ts";
import { SubnetSpace } from "../../machines/allocation/subnets.ts";
import { VxlanSpace, vxlanIdFirst, vxlanIdLast } from "../../machines/allocation/vxlan.ts";
import { addressAt, offsetIn, parseAddress, parseCidr, type Prefix } from "../../lib/ip-address.ts";
import { IPAMConfig } from "../../proto/gen/messages.ts";

const operations = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constant("take" as const), from: fc.nat(1_100), to: fc.nat(1_100) }),
    fc.record({ kind: fc.constant("claim" as const), number: fc.nat(1_100) }),
    fc.record({ kind: fc.constant("release" as const), number: fc.nat(1_100) }),
  ),
  { maxLength: 400, size: "max" },
);

test("a number space behaves like a set of used numbers, whatever its size", (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 1_100 }), operations, (size, steps) => {
      const space = new NumberSpace(size);
      const taken = new Set<number>();
      for (const step of steps) {
        if (step.kind === "take") {
          const [first, last] = [Math.min(step.from, step.to), Math.min(Math.max(step.from, step.to), size - 1)];
          const number = space.take(first, last);
          let hasFree = false;
          for (let each = first; each <= last; each += 1) hasFree ||= !taken.has(each);
          if (number < 0) t.false(hasFree);
          else t.true(number >= first && number <= last && !taken.has(number));
          if (number >= 0) taken.add(number);
        } else if (step.kind === "claim") {
          t.is(space.claim(step.number), step.number < size && !taken.has(step.number));
          if (step.number < size) taken.add(step.number);
        } else t.is(space.release(step.number), taken.delete(step.number));
        t.is(space.used, taken.size);
      }
      for (let number = 0; number < size; number += 1) t.is(space.has(number), taken.has(number));
    }),
    { numRuns: 60 },
  );
});

test("a freed number is the last to be allocated again, and a full space of sixteen million is detected at once", (t) => {
  const space = new NumberSpace(8);
  for (let number = 0; number < 5; number += 1) space.take();
  space.release(2);
  t.deepEqual([space.take(), space.take(), space.take(), space.take(), space.take()], [5, 6, 7, 2, -1]);
  const large = new NumberSpace(2 ** 24);
  for (let number = 0; number < 2 ** 24; number += 1) large.take();
  const before = performance.now();
  for (let tries = 0; tries < 10_000; tries += 1) large.take();
  large.release(12_345_678);
  t.is(large.take(), 12_345_678);
  t.true(performance.now() - before < 500, "a scan would take minutes");
});

function config(subnet: string, fields: Partial<IPAMConfig> = {}): IPAMConfig {
  return IPAMConfig.create({ subnet, ...fields });
}

function takeAll(space: AddressSpace): readonly string[] {
  const taken: string[] = [];
  for (let address = space.take(); address !== null; address = space.take()) taken.push(address);
  return taken;
}

test("the network address, the broadcast address, the gateway and reserved addresses are never allocated", (t) => {
  const space = new AddressSpace([config("10.1.2.0/29", { gateway: "10.1.2.1", reserved: { printer: "10.1.2.3" } })]);
  t.deepEqual(takeAll(space), ["10.1.2.2/29", "10.1.2.4/29", "10.1.2.5/29", "10.1.2.6/29"]);
  t.is(space.room, 0);
  t.deepEqual(takeAll(new AddressSpace([config("10.1.2.4/31")])), ["10.1.2.4/31", "10.1.2.5/31"]);
});

test("addresses come from the range; others of the subnet can be requested", (t) => {
  const space = new AddressSpace([config("10.1.0.0/16", { range: "10.1.5.0/30", gateway: "10.1.0.1" })]);
  t.deepEqual(takeAll(space), ["10.1.5.0/16", "10.1.5.1/16", "10.1.5.2/16", "10.1.5.3/16"]);
  t.deepEqual(space.takeExactly("10.1.9.9"), { address: "10.1.9.9/16" });
  t.deepEqual(space.takeExactly("10.1.9.9/16"), { problem: "address 10.1.9.9/16 is already in use" });
  t.deepEqual(space.takeExactly("10.1.0.1"), { problem: "address 10.1.0.1 is already in use" });
  t.deepEqual(space.takeExactly("10.2.0.1"), { problem: "address 10.2.0.1 is not in 10.1.0.0/16" });
  t.true(space.release("10.1.5.1/16"));
  t.false(space.release("10.1.5.1/16"));
  t.is(space.take(), "10.1.5.1/16");
});

test("a second subnet is used once the first is full, and IPv6 addresses are allocated too", (t) => {
  const space = new AddressSpace([config("10.1.0.0/30", { gateway: "10.1.0.1" }), config("fd00::/64")]);
  t.deepEqual([space.take(), space.take(), space.take()], ["10.1.0.2/30", "fd00::1/64", "fd00::2/64"]);
  t.deepEqual(space.takeExactly("fd00::1:0:0:9"), { address: "fd00::1:0:0:9/64" });
  t.false(space.claim("fd00::1:0:0:9/64"));
  t.true(space.release("fd00:0::1/64"));
  t.is(space.holders, 3);
});

test("claimed addresses are never allocated, and released ones can be allocated again, to the last address", (t) => {
  const steps = fc.array(fc.tuple(fc.constantFrom("take", "claim", "release"), fc.nat(63)), {
    maxLength: 200,
    size: "max",
  });
  fc.assert(
    fc.property(steps, (all) => {
      const space = new AddressSpace([config("192.168.7.64/26", { gateway: "192.168.7.65" })]);
      const held = new Set<string>();
      for (const [kind, offset] of all) {
        const address = `192.168.7.${64 + offset}/26`;
        if (kind === "take") {
          const given = space.take();
          if (given === null) t.is(held.size, 61);
          else {
            t.false(held.has(given));
            held.add(given);
          }
        } else if (kind === "claim") {
          if (space.claim(address)) held.add(address);
          else t.true(held.has(address) || offset < 2 || offset === 63);
        } else if (offset > 1 && offset < 63) t.is(space.release(address), held.delete(address));
        t.is(space.holders, held.size);
      }
      for (const address of held) space.release(address);
      t.is(takeAll(space).length, 61);
    }),
    { numRuns: 100 },
  );
});

const cidr = (text: string): Prefix => parseCidr(text) as Prefix;
const show = (prefix: Prefix | null): string | null =>
  prefix === null ? null : `${addressAt(prefix, 0)}/${prefix.length}`;

test("default subnets come one after the other, skipping those in use", (t) => {
  const space = new SubnetSpace();
  const defaults = { pools: ["10.0.0.0/14", "172.20.0.0/15"], length: 16 };
  t.true(space.claim("own", cidr("10.1.128.0/17")));
  t.is(space.conflict(cidr("10.1.0.0/16"))?.owner, "own");
  t.false(space.claim("other", cidr("10.0.0.0/8")));
  t.deepEqual(
    ["a", "b", "c", "d", "e", "f"].map((owner) => show(space.take(owner, defaults))),
    ["10.0.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "172.20.0.0/16", "172.21.0.0/16", null],
  );
  t.true(space.release("a"));
  t.true(space.release("own"));
  t.is(show(space.take("g", defaults)), "10.0.0.0/16");
  t.is(show(space.take("h", defaults)), "10.1.0.0/16");
});

test("subnets never overlap, and all returned ones can be allocated again", (t) => {
  const steps = fc.array(
    fc.record({ owner: fc.nat(12), asks: fc.option(fc.tuple(fc.nat(255), fc.integer({ min: 20, max: 30 }))) }),
    { maxLength: 80, size: "max" },
  );
  fc.assert(
    fc.property(steps, (all) => {
      const space = new SubnetSpace();
      const defaults = { pools: ["10.0.0.0/20"], length: 24 };
      const held = new Map<string, Prefix>();
      for (const { owner, asks } of all) {
        const id = `n${owner}`;
        if (held.delete(id)) {
          t.true(space.release(id));
          continue;
        }
        if (asks === null) {
          const given = space.take(id, defaults);
          if (given !== null) held.set(id, given);
        } else {
          const prefix = cidr(`10.0.${asks[0] % 16}.${asks[0]}/${asks[1]}`);
          if (space.claim(id, prefix)) held.set(id, prefix);
        }
        const ranges = [...held.values()].map(
          ({ value, length }) => [value, value + (1n << BigInt(32 - length))] as const,
        );
        ranges.sort(([a], [b]) => (a < b ? -1 : 1));
        for (const [at, [from]] of ranges.entries()) t.true(at === 0 || (ranges[at - 1]?.[1] ?? 0n) <= from);
      }
      for (const id of held.keys()) space.release(id);
      for (let number = 0; number < 16; number += 1) t.not(space.take(`all${number}`, defaults), null);
      t.is(space.take("more", defaults), null);
    }),
    { numRuns: 100 },
  );
});

test("VXLAN ids are allocated from 4096 on, each once, and reused late", (t) => {
  const space = new VxlanSpace();
  t.true(space.claim("pinned", 4097));
  t.false(space.claim("other", 4097));
  t.deepEqual([space.take("a"), space.take("b")], [4096, 4098]);
  space.release("a");
  t.is(space.take("c"), 4099);
  space.continueAfter(vxlanIdLast);
  t.is(space.take("d"), vxlanIdFirst);
});

test("IPv4 offsets are read as the general parser reads them", (t) => {
  const prefix = cidr("10.0.0.0/8");
  const part = fc.integer({ min: 0, max: 300 }).map(String);
  const text = fc.oneof(
    fc.tuple(part, part, part, part).map((parts) => parts.join(".")),
    fc.constantFrom(
      "",
      "10",
      "10.1.2",
      "10.1.2.3.4",
      "10..2.3",
      "10.1.2.",
      "10.1.2.x",
      "10.1.2.03",
      "10.1.00.3",
      "10.1.2.3000",
    ),
  );
  fc.assert(
    fc.property(text, (each) => {
      const parsed = parseAddress(each);
      const offset = parsed === null || parsed.value >> 24n !== 10n ? -1 : Number(parsed.value & 0xff_ffffn);
      t.is(offsetIn(prefix, each), offset);
      if (offset >= 0) t.is(addressAt(prefix, offset), each);
    }),
  );
});

test("IPv6 addresses are written as RFC 5952 specifies", (t) => {
  const written = ["::", "::1", "fd00::", "fd00::1:0:0:9", "2001:db8:0:1:1:1:1:1", "1:0:0:2::", "1:2:3:4:5:6:7:8"];
  for (const text of written)
    t.is(addressAt({ family: 6, value: parseAddress(text)?.value ?? 0n, length: 0 }, 0), text);
});
