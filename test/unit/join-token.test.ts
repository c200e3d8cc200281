import { createHash } from "node:crypto";
import test from "ava";
import { isSameToken, makeJoinToken, parseJoinToken, rootMatches } from "../../lib/pki/index.ts";

const root = Buffer.from("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n");

test("a token has SwarmKit's format: 50 digits that pin the root and 25 of secret", (t) => {
  const token = makeJoinToken(root, new Uint8Array(16));
  t.regex(token, /^SWMTKN-1-[0-9a-z]{50}-0{25}$/);
  t.is(makeJoinToken(root, new Uint8Array(16).fill(0xff)).slice(-25), "f5lxx1zz5pnorynqglhzmsp33"); // 2^128 - 1 in base 36
});

test("a token's digest is the SHA-256 of the root's exact bytes", (t) => {
  const token = parseJoinToken(makeJoinToken(root, new Uint8Array(16).fill(7)));
  if (token.kind !== "token") return t.fail("not a token");
  t.is(token.digestHex, createHash("sha256").update(root).digest("hex"));
  t.true(rootMatches(token, root));
  t.false(rootMatches(token, root.subarray(0, -1)));
  t.false(token.requiresFips);
  return undefined;
});

test("a token whose digest begins with zero bytes keeps them", (t) => {
  const token = parseJoinToken(`SWMTKN-1-${"1".padStart(50, "0")}-${"0".repeat(25)}`);
  t.like(token, { kind: "token", digestHex: "1".padStart(64, "0") });
});

test("a version 2 token says whether it requires FIPS", (t) => {
  const [, , digest, secret] = makeJoinToken(root, new Uint8Array(16)).split("-");
  t.like(parseJoinToken(`SWMTKN-2-1-${digest}-${secret}`), { kind: "token", requiresFips: true });
  t.like(parseJoinToken(`SWMTKN-2-0-${digest}-${secret}`), { kind: "token", requiresFips: false });
  t.is(parseJoinToken(`SWMTKN-2-${digest}-${secret}`).kind, "invalid");
  t.is(parseJoinToken(`SWMTKN-1-1-${digest}-${secret}`).kind, "invalid");
});

test("a string that is not a token is invalid", (t) => {
  const good = makeJoinToken(root, new Uint8Array(16));
  const bad = [
    "",
    "SWMTKN",
    good.replace("SWMTKN", "swmtkn"),
    `${good}0`,
    good.slice(0, -1),
    good.replace("-1-", "-3-"),
    good.toUpperCase(),
    `${good}\n`,
  ];
  for (const text of bad) t.is(parseJoinToken(text).kind, "invalid", text);
  // 50 digits can represent more than 256 bits.
  t.is(parseJoinToken(`SWMTKN-1-${"z".repeat(50)}-${"0".repeat(25)}`).kind, "invalid");
});

test("tokens are equal only if every character is", (t) => {
  const token = makeJoinToken(root, new Uint8Array(16));
  t.true(isSameToken(token, `${token}`));
  t.false(isSameToken(token, `${token.slice(0, -1)}1`));
  t.false(isSameToken(token, ""));
});

test("a secret of another length is rejected", (t) => {
  t.throws(() => makeJoinToken(root, new Uint8Array(15)), { instanceOf: RangeError });
});
