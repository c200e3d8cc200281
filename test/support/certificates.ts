/**
 * Random certificates, requests and chains for tests: plans that fast-check draws, and PKI.js to make them. PKI.js writes its
 * own DER, so that a mistake in lib/pki/ is not made twice.
 */
import { generateKeyPairSync, sign, type KeyObject, type webcrypto } from "node:crypto";
import * as asn1js from "asn1js";
import fc from "fast-check";
import * as pkijs from "pkijs";

export interface Pair {
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
  readonly spki: Buffer;
}

export function pair(keys: { readonly privateKey: KeyObject; readonly publicKey: KeyObject }): Pair {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = keys.publicKey;
  const told = { [fc.toStringMethod]: () => `${type} ${details?.namedCurve ?? ""}` }; // in counterexamples
  return { ...keys, ...told, spki: keys.publicKey.export({ format: "der", type: "spki" }) };
}

/** Keys that may sign. Two of each frequent kind, so that a signature by the wrong key differs in nothing else. */
export const signers: readonly Pair[] = [
  pair(generateKeyPairSync("ec", { namedCurve: "P-256" })),
  pair(generateKeyPairSync("ec", { namedCurve: "P-256" })),
  pair(generateKeyPairSync("ec", { namedCurve: "P-384" })),
  pair(generateKeyPairSync("rsa", { modulusLength: 2048 })),
];

/** Keys that certificates may contain. */
export const subjectKeys: readonly Pair[] = [...signers, pair(generateKeyPairSync("ed25519"))];

interface AttributePlan {
  readonly oid: string;
  readonly type: "utf8" | "printable" | "teletex" | "ia5" | "bmp" | "universal";
  readonly text: string;
}

/** Relative distinguished names: mostly of one attribute each. */
export type NamePlan = readonly (readonly AttributePlan[])[];

const odd = [
  ",",
  "+",
  '"',
  "\\",
  "<",
  ">",
  ";",
  "=",
  "#",
  " ",
  "\n",
  "\r",
  "\t",
  "/",
  "*",
  "@",
  "CN=",
  "\nOU=swarm-manager",
];
const plain = fc.string({ unit: fc.constantFrom(...Array.from("abcXYZ019 '()+,-./:=?")), maxLength: 12 });
const ascii = fc.string({
  unit: fc.oneof(fc.constantFrom(...odd), fc.constantFrom(...Array.from("abcXYZ019-."))),
  maxLength: 10,
});
const latin = fc.string({
  unit: fc.oneof(fc.constantFrom(...odd), fc.constantFrom(...Array.from("aZ9éß¿ÿ"))),
  maxLength: 10,
});
const basic = fc.string({
  unit: fc.oneof(fc.constantFrom(...odd), fc.constantFrom(...Array.from("aZ9é☃漢\u202e\u0000"))),
  maxLength: 8,
});
const whole = fc.string({
  unit: fc.oneof(fc.constantFrom(...odd), fc.constantFrom("a", "é", "漢", "😀", "\u0000")),
  maxLength: 8,
});

/** Text for fields whose encoding the code under test chooses. */
export const anyText = fc.oneof(plain, ascii, whole);

const typedText: fc.Arbitrary<Pick<AttributePlan, "type" | "text">> = fc.oneof(
  whole.map((text) => ({ type: "utf8" as const, text })),
  plain.map((text) => ({ type: "printable" as const, text })),
  latin.map((text) => ({ type: "teletex" as const, text })),
  ascii.map((text) => ({ type: "ia5" as const, text })),
  basic.map((text) => ({ type: "bmp" as const, text })),
  whole.map((text) => ({ type: "universal" as const, text })),
);

const attribute = fc
  .tuple(fc.constantFrom("2.5.4.3", "2.5.4.10", "2.5.4.11", "2.5.4.11", "2.5.4.6", "2.5.4.5", "1.2.3.4.5"), typedText)
  .map(([oid, typed]): AttributePlan => ({ oid, ...typed }));
const role: fc.Arbitrary<AttributePlan> = fc.constantFrom(
  { oid: "2.5.4.11", type: "printable", text: "swarm-manager" },
  { oid: "2.5.4.11", type: "utf8", text: "swarm-worker" },
);

export const name: fc.Arbitrary<NamePlan> = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: attribute.map((one) => [one]) },
    { weight: 3, arbitrary: role.map((one) => [one]) },
    { weight: 1, arbitrary: fc.array(attribute, { minLength: 2, maxLength: 3 }) },
  ),
  { maxLength: 5 },
);

/** The first attribute of that kind, in the order of the encoded name. */
export function firstText(plan: NamePlan, oid: string): string {
  return plan.flat().find((each) => each.oid === oid)?.text ?? "";
}

const stringTypes = {
  utf8: asn1js.Utf8String,
  printable: asn1js.PrintableString,
  teletex: asn1js.TeletexString,
  ia5: asn1js.IA5String,
  bmp: asn1js.BmpString,
  universal: asn1js.UniversalString,
};

function nameOf(plan: NamePlan): pkijs.RelativeDistinguishedNames {
  const sets = plan.map(
    (attributes) =>
      new asn1js.Set({
        value: attributes.map(({ oid, type, text }) => {
          const value = new stringTypes[type]({ value: text });
          return new asn1js.Sequence({ value: [new asn1js.ObjectIdentifier({ value: oid }), value] });
        }),
      }),
  );
  return pkijs.RelativeDistinguishedNames.fromBER(new asn1js.Sequence({ value: sets }).toBER());
}

const edges = [
  Date.UTC(1900, 0, 1),
  Date.UTC(1949, 11, 31, 23, 59, 59),
  Date.UTC(1950, 0, 1),
  Date.UTC(1969, 11, 31, 23, 59, 59),
  Date.UTC(1970, 0, 1),
  Date.UTC(1999, 11, 31, 23, 59, 59),
  Date.UTC(2026, 4, 17),
  Date.UTC(2049, 11, 31, 23, 59, 59),
  Date.UTC(2050, 0, 1),
  Date.UTC(9999, 11, 31, 23, 59, 59),
];

/** Whole seconds, in milliseconds: near a border of the encodings, or anywhere in 1900-9999. */
export const instant: fc.Arbitrary<number> = fc.oneof(
  fc
    .tuple(fc.constantFrom(...edges), fc.integer({ min: -2, max: 2 }))
    .map(([at, seconds]) => Math.min(edges.at(-1) as number, Math.max(edges[0] as number, at + seconds * 1_000))),
  fc
    .integer({ min: (edges[0] as number) / 1_000, max: (edges.at(-1) as number) / 1_000 })
    .map((seconds) => seconds * 1_000),
);

export interface ExtensionPlan {
  readonly oid: string;
  readonly isCritical: boolean;
  readonly value: Uint8Array;
}

/** An OBJECT IDENTIFIER that nobody knows. */
export const unknownOid = "1.3.6.1.4.1.99999.7";

export function constraints(isAuthority: boolean, pathLength?: number, isCritical = true): ExtensionPlan {
  const value = new pkijs.BasicConstraints({
    cA: isAuthority,
    ...(pathLength === undefined ? {} : { pathLenConstraint: pathLength }),
  });
  return { oid: "2.5.29.19", isCritical, value: new Uint8Array(value.toSchema().toBER()) };
}

/** The bits from the top: digitalSignature 0, keyEncipherment 2, keyCertSign 5, cRLSign 6. */
export function keyUsage(bits: number, isCritical = true): ExtensionPlan {
  const value = new asn1js.BitString({ valueHex: Uint8Array.of(bits).buffer });
  return { oid: "2.5.29.15", isCritical, value: new Uint8Array(value.toBER()) };
}

/** DNS names, mail addresses, URIs and IP addresses. */
const alternative = fc.oneof(
  fc
    .constantFrom("a.example", "*.b.example", "swarm-manager", "x".repeat(63))
    .map((value) => ({ type: 2 as const, value })),
  fc.constant({ type: 1 as const, value: "root@a.example" }),
  fc.constantFrom("https://a.example/?q=1,2", "spiffe://cluster/node").map((value) => ({ type: 6 as const, value })),
  fc
    .oneof(fc.uint8Array({ minLength: 4, maxLength: 4 }), fc.uint8Array({ minLength: 16, maxLength: 16 }))
    .map((bytes) => ({ type: 7 as const, value: new asn1js.OctetString({ valueHex: Uint8Array.from(bytes).buffer }) })),
);

const alternatives = fc.array(alternative, { minLength: 1, maxLength: 4 }).map((names) => {
  const value = new pkijs.AltName({ altNames: names.map((each) => new pkijs.GeneralName(each)) });
  return new Uint8Array(value.toSchema().toBER());
});

const usages = fc.subarray(["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2", "1.3.6.1.5.5.7.3.3"], { minLength: 1 });

/** Extensions that forbid nothing by themselves, some of them critical, each at most once and in any order. */
export const harmless: fc.Arbitrary<readonly ExtensionPlan[]> = fc
  .tuple(
    fc.option(fc.tuple(alternatives, fc.boolean())),
    fc.option(fc.tuple(usages, fc.boolean())),
    fc.option(fc.uint8Array({ maxLength: 20 })),
  )
  .map(([san, eku, stranger]): ExtensionPlan[] => [
    ...(san === null ? [] : [{ oid: "2.5.29.17", isCritical: san[1], value: san[0] }]),
    ...(eku === null
      ? []
      : [
          {
            oid: "2.5.29.37",
            isCritical: eku[1],
            value: new Uint8Array(new pkijs.ExtKeyUsage({ keyPurposes: eku[0] }).toSchema().toBER()),
          },
        ]),
    ...(stranger === null ? [] : [{ oid: unknownOid, isCritical: false, value: Uint8Array.from(stranger) }]),
  ])
  .chain((list) => fc.shuffledSubarray(list, { minLength: list.length }));

export const serial: fc.Arbitrary<Uint8Array> = fc.oneof(
  fc.constantFrom(Uint8Array.of(0), Uint8Array.of(1), Uint8Array.of(0x7f), Uint8Array.of(0, 0x80)),
  fc.uint8Array({ minLength: 1, maxLength: 19 }).map((rest) => Uint8Array.from([0x01, ...rest])),
);

export interface CertificatePlan {
  readonly serial: Uint8Array;
  readonly issuer: NamePlan;
  readonly subject: NamePlan;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly key: Pair;
  readonly extensions: readonly ExtensionPlan[];
}

function timeOf(atMs: number): pkijs.Time {
  const value = new Date(atMs);
  const isShort = value.getUTCFullYear() >= 1950 && value.getUTCFullYear() < 2050;
  return new pkijs.Time({ type: isShort ? pkijs.TimeType.UTCTime : pkijs.TimeType.GeneralizedTime, value });
}

function extensionOf({ oid, isCritical, value }: ExtensionPlan): pkijs.Extension {
  return new pkijs.Extension({ extnID: oid, critical: isCritical, extnValue: Uint8Array.from(value).buffer });
}

function signing({ privateKey }: Pair): { readonly key: webcrypto.CryptoKey; readonly hash: string } {
  const curve = privateKey.asymmetricKeyDetails?.namedCurve;
  const algorithm =
    curve === undefined
      ? { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" }
      : { name: "ECDSA", namedCurve: curve === "secp384r1" ? "P-384" : "P-256" };
  return {
    key: privateKey.toCryptoKey(algorithm, true, ["sign"]),
    hash: curve === "secp384r1" ? "SHA-384" : "SHA-256",
  };
}

/** The DER of a certificate that PKI.js writes and signs. */
export async function certify(plan: CertificatePlan, signer: Pair): Promise<Buffer> {
  const certificate = new pkijs.Certificate();
  certificate.version = 2;
  certificate.serialNumber = new asn1js.Integer({ valueHex: Uint8Array.from(plan.serial).buffer });
  certificate.issuer = nameOf(plan.issuer);
  certificate.subject = nameOf(plan.subject);
  certificate.notBefore = timeOf(plan.notBeforeMs);
  certificate.notAfter = timeOf(plan.notAfterMs);
  certificate.subjectPublicKeyInfo = pkijs.PublicKeyInfo.fromBER(Uint8Array.from(plan.key.spki).buffer);
  if (plan.extensions.length > 0) certificate.extensions = plan.extensions.map(extensionOf);
  const { key, hash } = signing(signer);
  await certificate.sign(key, hash);
  return Buffer.from(certificate.toSchema(true).toBER());
}

/** The DER of a request that PKI.js writes and signs, with the extensions that it asks for. */
export async function request(subject: NamePlan, key: Pair, extensions: readonly ExtensionPlan[]): Promise<Buffer> {
  const made = new pkijs.CertificationRequest();
  made.version = 0;
  made.subject = nameOf(subject);
  made.subjectPublicKeyInfo = pkijs.PublicKeyInfo.fromBER(Uint8Array.from(key.spki).buffer);
  const wanted = new pkijs.Extensions({ extensions: extensions.map(extensionOf) });
  made.attributes =
    extensions.length === 0
      ? []
      : [new pkijs.Attribute({ type: "1.2.840.113549.1.9.14", values: [wanted.toSchema()] })];
  const { key: signer, hash } = signing(key);
  await made.sign(signer, hash);
  return Buffer.from(made.toSchema(true).toBER());
}

/** A copy in a buffer of its own, as PKI.js expects. */
export function exact(bytes: Uint8Array): ArrayBuffer {
  return Uint8Array.from(bytes).buffer;
}

/** An element of DER with its contents: further elements if its tag says so. */
type Tree = { readonly tag: number; readonly inner: readonly Tree[] | Uint8Array };

function treesOf(der: Uint8Array): readonly Tree[] {
  const trees: Tree[] = [];
  for (let at = 0; at < der.length;) {
    const tag = der[at] as number;
    let length = der[at + 1] as number;
    let start = at + 2;
    if (length >= 0x80) {
      start += length & 0x7f;
      length = Number.parseInt(Buffer.from(der.subarray(at + 2, start)).toString("hex"), 16);
    }
    const contents = der.subarray(start, start + length);
    trees.push({ tag, inner: (tag & 0x20) === 0 ? contents : treesOf(contents) });
    at = start + length;
  }
  return trees;
}

function derOf({ tag, inner }: Tree): Buffer {
  const contents = inner instanceof Uint8Array ? inner : Buffer.concat(inner.map(derOf));
  const { length } = contents;
  const header = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Uint8Array.of(tag, ...header), contents]);
}

/** One change of one element, whose place is a fraction of the whole. */
interface Change {
  readonly place: number;
  readonly how: "drop" | "repeat" | "retag" | "replace" | "flip" | "append" | "swap";
  readonly byte: number;
  readonly bytes: Uint8Array;
}

export const change: fc.Arbitrary<Change> = fc.record({
  place: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
  how: fc.constantFrom("drop", "repeat", "retag", "replace", "flip", "append", "swap"),
  byte: fc.integer({ min: 1, max: 255 }),
  bytes: fc.uint8Array({ maxLength: 6 }),
});

function changed(tree: Tree, { how, byte, bytes }: Change): readonly Tree[] {
  const { tag, inner } = tree;
  const own = inner instanceof Uint8Array ? inner : null;
  switch (how) {
    case "drop":
      return [];
    case "repeat":
      return [tree, tree];
    case "retag":
      return [{ tag: tag ^ (byte % 2 === 0 ? byte : 1 << (byte % 6)), inner }];
    case "replace":
      return [{ tag, inner: bytes }];
    case "append":
      return [
        {
          tag,
          inner:
            own === null ? [...(inner as readonly Tree[]), { tag: 0x04, inner: bytes }] : Buffer.concat([own, bytes]),
        },
      ];
    case "swap":
      return [
        own === null ? { tag, inner: (inner as readonly Tree[]).toReversed() } : { tag, inner: own.toReversed() },
      ];
    case "flip": {
      if (own === null || own.length === 0) return [{ tag: tag ^ 0x20, inner }];
      const at = byte % own.length;
      return [{ tag, inner: own.map((each, index) => (index === at ? each ^ (1 << (byte % 8)) : each)) }];
    }
  }
}

function count({ inner }: Tree): number {
  return inner instanceof Uint8Array ? 1 : inner.reduce((sum, each) => sum + count(each), 1);
}

/** The DER after a change within its outermost element; its lengths are right. */
export function mutated(der: Uint8Array, wanted: Change): Buffer {
  const [whole] = treesOf(der) as [Tree];
  let left = 1 + Math.floor(wanted.place * (count(whole) - 1));
  const visit = (tree: Tree): readonly Tree[] => {
    if (left === 0) {
      left -= 1;
      return changed(tree, wanted);
    }
    left -= 1;
    return [tree.inner instanceof Uint8Array ? tree : { tag: tree.tag, inner: tree.inner.flatMap(visit) }];
  };
  return derOf(visit(whole)[0] as Tree);
}

/** A certificate or a request whose body is replaced, and signed again with SHA-256. */
export function signedAgain(der: Uint8Array, body: Uint8Array, signer: Pair): Buffer {
  const parts = (treesOf(der)[0] as Tree).inner as readonly Tree[];
  const signature = sign("sha256", body, signer.privateKey);
  const algorithm = derOf(parts[1] as Tree);
  return derOf({
    tag: 0x30,
    inner: Buffer.concat([body, algorithm, derOf({ tag: 0x03, inner: Buffer.concat([Uint8Array.of(0), signature]) })]),
  });
}

/** The signed part of a certificate or a request. */
export function bodyOf(der: Uint8Array): Buffer {
  const parts = (treesOf(der)[0] as Tree).inner as readonly Tree[];
  return derOf(parts[0] as Tree);
}
