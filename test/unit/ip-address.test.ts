// IP addresses: which strings are valid, compared with Node's own parser.
import { isIP } from "node:net";
import test from "ava";
import fc from "fast-check";
import { containsRange, parseAddress, parseCidr } from "../../lib/ip-address.ts";

const pieces = ["0", "1", "ff", "abcd", "12345", "::", ":", ".", "1.2.3.4", "255", "256", "01", "g", "A"];

test("an address is valid if Node accepts it, whichever characters it has", (t) => {
  const texts = fc.array(fc.constantFrom(...pieces), { minLength: 1, maxLength: 12 }).map((parts) => parts.join(""));
  const groups = fc.array(fc.constantFrom("0", "ff", "1.2.3.4", "", ""), { minLength: 1, maxLength: 9 });
  const either = fc.oneof(
    texts,
    groups.map((parts) => parts.join(":")),
    fc.ipV4(),
    fc.ipV6(),
  );
  fc.assert(
    fc.property(either, (text) => {
      t.is(parseAddress(text)?.family ?? 0, isIP(text), text);
    }),
    { numRuns: 2_000 },
  );
});

test("an IPv4 address is allowed only at the end of an IPv6 address", (t) => {
  t.is(parseAddress("::ffff:1.2.3.4")?.value, 0xffff_0102_0304n);
  t.is(parseAddress("1:2:3:4:5:6:1.2.3.4")?.family, 6);
  for (const text of ["1.2.3.4::", "1.2.3.4::1", "1:1.2.3.4::1.2.3.4", "::1.2.3.4:1"]) t.is(parseAddress(text), null);
  t.is(parseCidr("1.2.3.4::/64"), null);
});

test("a prefix has its host bits cleared, and contains the addresses that begin with it", (t) => {
  t.deepEqual(parseCidr("10.1.2.3/8"), { family: 4, value: 0x0a00_0000n, length: 8 });
  const outer = parseCidr("fd00::/8");
  const inner = parseCidr("fd00:1::/32");
  t.true(outer !== null && inner !== null && containsRange(outer, inner) && !containsRange(inner, outer));
  for (const text of ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/1.", "::/129"]) t.is(parseCidr(text), null);
});
