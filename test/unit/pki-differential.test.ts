/**
 * Compares our X.509 code (lib/pki/) with OpenSSL and PKI.js over random certificates, requests and chains (ADR 43).
 * OpenSSL is Node's, or the `openssl` command for what Node does not offer: verifying whole chains, and requests.
 *
 * Each reads what the others wrote with the same fields. We accept a chain exactly when its plan is sound, and no mutant that
 * both others reject. Our rules are stricter by design in these points:
 *
 * - Requests: one PEM block, version 0, a key on P-256, P-384 or P-521 or an RSA key of at least 2,048 bits with PKCS #1 v1.5,
 *   SHA-2.
 * - Certificates: DER only, where OpenSSL also reads BER. Authorities need basic constraints, where OpenSSL accepts some
 *   without. Critical constraints on names and policies count as unknown.
 * - Roots: self-signed, currently valid, signed by ECDSA or RSA with SHA-2.
 *
 * In one point OpenSSL is stricter: in the last second of its validity, it considers a certificate expired (RFC 5280 does not).
 */
import { spawnSync } from "node:child_process";
import { X509Certificate, generateKeyPairSync } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import fc from "fast-check";
import * as pkijs from "pkijs";
import { signCertificate } from "../../lib/pki/authority.ts";
import { certificateParts } from "../../lib/pki/certificate.ts";
import { DerError } from "../../lib/pki/der.ts";
import * as pki from "../../lib/pki/index.ts";
import { pemBlocks, toPem } from "../../lib/pki/pem.ts";
import { algorithmForKey } from "../../lib/pki/signature.ts";
import * as support from "../support/certificates.ts";

const { describeCertificate, checkRoot, issuerName } = pki;
const label = "CERTIFICATE";
const requestLabel = "CERTIFICATE REQUEST";
const nowMs = Date.UTC(2026, 4, 17, 12, 34, 56);
const dayMs = 86_400_000;
const report = { includeErrorInReport: true };
const commonName = "2.5.4.3";
const organization = "2.5.4.10";
const unit = "2.5.4.11";

const folder = mkdtempSync(join(tmpdir(), "pki-differential-"));
test.after.always(() => rmSync(folder, { recursive: true }));
const withOpenssl = spawnSync("openssl", ["version"]).status === 0 ? test : test.skip;

/** Runs the command in the folder of the files. */
function openssl(...args: readonly string[]): { readonly isDone: boolean; readonly text: string } {
  const { status, stdout, stderr } = spawnSync("openssl", args, { cwd: folder, encoding: "utf8" });
  return { isDone: status === 0, text: stdout + stderr };
}

function put(file: string, text: string): string {
  writeFileSync(join(folder, file), text);
  return file;
}

interface Chain {
  readonly leaf: Uint8Array;
  readonly intermediates: readonly Uint8Array[];
  readonly root: Uint8Array;
}

function pemOf(ders: readonly Uint8Array[]): string {
  return ders.map((der) => toPem(der, label)).join("");
}

function isOursAccepting({ leaf, intermediates, root }: Chain, atMs: number): boolean {
  const read = describeCertificate(pemOf([leaf, ...intermediates]));
  return read.kind === "certificate" && read.verify(pemOf([root]), atMs);
}

function isOpensslAccepting({ leaf, intermediates, root }: Chain, atMs: number): boolean {
  const untrusted = intermediates.length === 0 ? [] : ["-untrusted", put("intermediates.pem", pemOf(intermediates))];
  const roots = ["-CAfile", put("root.pem", pemOf([root])), "-no-CApath", "-no-CAstore"];
  const at = String(Math.floor(atMs / 1_000));
  return openssl("verify", "-attime", at, ...roots, ...untrusted, put("leaf.pem", pemOf([leaf]))).isDone;
}

function theirs(der: Uint8Array): pkijs.Certificate {
  return pkijs.Certificate.fromBER(support.exact(der));
}

async function isPkijsAccepting({ leaf, intermediates, root }: Chain, atMs: number): Promise<boolean> {
  try {
    const certs = [...intermediates.map(theirs), theirs(leaf)]; // the last one is checked
    const checkDate = new Date(atMs);
    const engine = new pkijs.CertificateChainValidationEngine({ trustedCerts: [theirs(root)], certs, checkDate });
    return (await engine.verify()).result;
  } catch {
    return false;
  }
}

function isOpensslAcceptingRequest(der: Uint8Array): boolean {
  return openssl("req", "-verify", "-noout", "-in", put("request.pem", toPem(der, requestLabel))).text.includes(
    "verify OK",
  );
}

async function isPkijsAcceptingRequest(der: Uint8Array): Promise<boolean> {
  try {
    return await pkijs.CertificationRequest.fromBER(support.exact(der)).verify();
  } catch {
    return false;
  }
}

/** A difference between what a certificate was made of and what somebody reads from it. */
function same(actual: unknown, expected: unknown, what: string): void {
  const [one, other] = [actual, expected].map((value) =>
    value instanceof Uint8Array ? Buffer.from(value).toString("hex") : JSON.stringify(value),
  );
  if (one !== other) throw new Error(`${what}: ${one} is not ${other}`);
}

test("we read each field of certificates from PKI.js", async (t) => {
  const plan = fc.record({
    serial: support.serial,
    issuer: support.name,
    subject: support.name,
    notBeforeMs: support.instant,
    notAfterMs: support.instant,
    key: fc.constantFrom(...support.subjectKeys),
    extensions: support.harmless,
  });
  await fc.assert(
    fc.asyncProperty(plan, fc.constantFrom(...support.signers), async (wanted, signer) => {
      const der = await support.certify(wanted, signer);
      const read = describeCertificate(toPem(der, label));
      if (read.kind === "malformed") throw new Error(read.reason);
      same(read.nodeId, support.firstText(wanted.subject, commonName), "common name");
      same(read.organization, support.firstText(wanted.subject, organization), "organization");
      const ou = support.firstText(wanted.subject, unit);
      same(read.role, ou === "swarm-worker" || ou === "swarm-manager" ? ou : null, "role");
      same(read.notBeforeMs, wanted.notBeforeMs, "start");
      same(read.notAfterMs, wanted.notAfterMs, "end");
      const parts = certificateParts(der);
      const other = theirs(der);
      same(parts.issuerDer, new Uint8Array(other.issuer.valueBeforeDecode), "issuer");
      same(parts.subjectDer, new Uint8Array(other.subject.valueBeforeDecode), "subject");
      same(parts.publicKeyDer, wanted.key.spki, "key");
      same(
        parts.extensions.map((each) => [each.isCritical, Buffer.from(each.value).toString("hex")]),
        wanted.extensions.map((each) => [each.isCritical, Buffer.from(each.value).toString("hex")]),
        "extensions",
      );
      same(issuerName(toPem(der, label))?.subjectDer, parts.subjectDer, "name of an issuer");
      same(checkRoot(toPem(der, label), null, wanted.notBeforeMs).kind, "refused", "root");
      same(new X509Certificate(der).verify(signer.publicKey), true, "signature");
    }),
    { ...report, numRuns: 150 },
  );
  t.pass();
});

/** A root of PKI.js, with the key of one of the signers. */
const root = fc
  .tuple(support.name, fc.constantFrom(...support.signers), fc.boolean(), support.harmless)
  .map(([subject, key, hasUsage, extensions]) => ({
    key,
    serial: Uint8Array.of(1),
    issuer: subject,
    subject,
    notBeforeMs: nowMs - 3_650 * dayMs,
    notAfterMs: nowMs + 3_650 * dayMs,
    extensions: [
      support.constraints(true),
      ...(hasUsage ? [support.keyUsage(0x06)] : []),
      ...extensions.filter(({ oid }) => oid !== "2.5.29.37"),
    ],
  }));

/** The fields of a certificate of ours as PKI.js reads them, in plain data. */
function fieldsOf(der: Uint8Array) {
  const read = theirs(der);
  const san = read.extensions?.find(({ extnID }) => extnID === "2.5.29.17")?.parsedValue as pkijs.AltName | undefined;
  const serial = read.serialNumber.valueBlock.valueHexView;
  return {
    version: read.version,
    isSerialValid: serial.length <= 20 && (serial[0] as number) < 0x80 && serial.some((byte) => byte !== 0),
    subject: read.subject.typesAndValues.map(({ type, value }) => [type, String(value.valueBlock.value)]),
    notBeforeMs: read.notBefore.value.getTime(),
    notAfterMs: read.notAfter.value.getTime(),
    extensions: read.extensions?.map(({ extnID, critical }) => `${extnID}${critical ? "!" : ""}`).join(" "),
    names: san?.altNames.filter(({ type }) => type === 2).map(({ value }) => String(value)),
  };
}

const usualExtensions = "2.5.29.15! 2.5.29.37 2.5.29.19! 2.5.29.14 2.5.29.35 2.5.29.17";

/** Node's OpenSSL, PKI.js and, if asked for, the `openssl` command accept it under that root. */
async function mustVerify(leaf: Uint8Array, rootDer: Uint8Array, atMs: number): Promise<void> {
  const chain = { leaf, intermediates: [], root: rootDer };
  const [certificate, issuer] = [new X509Certificate(leaf), new X509Certificate(rootDer)];
  same(certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey), true, "OpenSSL verifies");
  same(await isPkijsAccepting(chain, atMs), true, "PKI.js verifies");
  same(isOpensslAccepting(chain, atMs), true, "openssl verifies");
  same(isOursAccepting(chain, atMs), true, "we verify");
  same(certificateParts(leaf).issuerDer, certificateParts(rootDer).subjectDer, "issuer");
}

withOpenssl("OpenSSL and PKI.js read each field of our certificates, and accept them", async (t) => {
  const id = fc.string({ unit: fc.constantFrom(...Array.from("abcXYZ019_-")), minLength: 1, maxLength: 30 });
  const wishes = fc.record({
    root,
    id,
    role: fc.constantFrom("swarm-worker" as const, "swarm-manager" as const),
    cluster: support.anyText,
    user: support.anyText,
    mark: support.anyText,
    hours: fc.integer({ min: 1, max: 80_000 }),
  });
  await fc.assert(
    fc.asyncProperty(wishes, async (wanted) => {
      const rootDer = await support.certify(wanted.root, wanted.root.key);
      const signer = {
        rootCertificatePem: toPem(rootDer, label),
        rootKeyPem: wanted.root.key.privateKey.export({ format: "pem", type: "pkcs8" }) as string,
        nowMs,
      };
      const { csrPem } = await pki.createKeyAndCsr();
      const [csr] = pemBlocks(csrPem, requestLabel) as [Buffer];
      same(await isPkijsAcceptingRequest(csr), true, "PKI.js accepts the request");
      const asked = { ...signer, csrPem, organization: wanted.cluster, validitySeconds: wanted.hours * 3_600 };
      const minuteMs = Math.floor(nowMs / 60_000) * 60_000;

      const node = pemBlocks(await pki.issue({ ...asked, nodeId: wanted.id, role: wanted.role }), label)[0] as Buffer;
      same(
        fieldsOf(node),
        {
          version: 2,
          isSerialValid: true,
          subject: [
            [organization, wanted.cluster],
            [unit, wanted.role],
            [commonName, wanted.id],
          ],
          notBeforeMs: minuteMs - 3_600_000,
          notAfterMs: minuteMs + wanted.hours * 3_600_000,
          extensions: usualExtensions,
          names: [wanted.role, wanted.id, ...(wanted.role === "swarm-manager" ? ["swarm-ca"] : [])],
        },
        "node",
      );
      await mustVerify(node, rootDer, nowMs);
      const read = describeCertificate(toPem(node, label), signer.rootCertificatePem);
      if (read.kind === "malformed") throw new Error(read.reason);
      same([read.nodeId, read.role, read.organization], [wanted.id, wanted.role, wanted.cluster], "we read the node");
      same(read.issuerPublicKeyDer, wanted.root.key.spki, "key of the issuer");

      const user = pki.issueUserCertificate({ ...asked, name: wanted.user, mark: wanted.mark, intermediatesPem: "" });
      const [userDer] = pemBlocks(user, label) as [Buffer];
      const { subject } = fieldsOf(userDer);
      const userSubject = [wanted.cluster, pki.userUnit, wanted.user, wanted.mark];
      same(
        subject.map(([, text]) => text),
        userSubject,
        "user",
      );
      await mustVerify(userDer, rootDer, nowMs);
    }),
    { ...report, numRuns: 20 },
  );
  t.pass();
});

test("times of any year are read as they were written, also in cross-certificates", async (t) => {
  const [old, young] = support.signers as [support.Pair, support.Pair];
  const plan = { serial: Uint8Array.of(1), issuer: [], subject: [], extensions: [support.constraints(true)] };
  const rootDer = await support.certify({ ...plan, key: old, notBeforeMs: 0, notAfterMs: nowMs }, old);
  const oldKeyPem = old.privateKey.export({ format: "pem", type: "pkcs8" }) as string;
  await fc.assert(
    fc.asyncProperty(support.instant, support.instant, support.name, async (notBeforeMs, notAfterMs, subject) => {
      const wanted = { ...plan, issuer: subject, subject, key: young, notBeforeMs, notAfterMs };
      const der = await support.certify(wanted, young);
      const [cross] = pemBlocks(pki.crossSign(toPem(der, label), toPem(rootDer, label), oldKeyPem), label) as [Buffer];
      const parts = certificateParts(rootDer);
      const [issuerDer, publicKeyDer] = [parts.subjectDer, young.spki];
      const leaf = { issuerDer, subjectDer: parts.subjectDer, publicKeyDer, notBeforeMs, notAfterMs, extensions: [] };
      for (const each of [cross, Buffer.from(signCertificate(leaf, old.privateKey, algorithmForKey(old.privateKey)))]) {
        const fields = fieldsOf(each);
        same([fields.notBeforeMs, fields.notAfterMs], [notBeforeMs, notAfterMs], "PKI.js reads");
        const { validFromDate, validToDate } = new X509Certificate(each);
        same([validFromDate.getTime(), validToDate.getTime()], [notBeforeMs, notAfterMs], "OpenSSL reads");
      }
      same(certificateParts(cross).subjectDer, certificateParts(der).subjectDer, "P3: name");
      const youngKeyPem = young.privateKey.export({ format: "pem", type: "pkcs8" }) as string;
      const crossRequest = pki.crossSignRequest(toPem(der, label), youngKeyPem);
      same(crossRequest.commonName, support.firstText(subject, commonName), "P3: common name for an external CA");
      const [body] = pemBlocks(crossRequest.csrPem, requestLabel) as [Buffer];
      same(await isPkijsAcceptingRequest(body), true, "PKI.js accepts the request");
      const read = pkijs.CertificationRequest.fromBER(support.exact(body));
      same(new Uint8Array(read.subject.valueBeforeDecode), certificateParts(der).subjectDer, "P3: name in the request");
    }),
    { ...report, numRuns: 60 },
  );
  t.pass();
});

const flaws = [
  "none",
  "expired",
  "early",
  "forged",
  "renamed",
  "no authority",
  "no constraints",
  "no usage",
  "too deep",
  "unknown",
  "missing",
] as const;
type Flaw = (typeof flaws)[number];

interface ChainPlan {
  readonly keys: readonly support.Pair[];
  readonly texts: readonly support.NamePlan[];
  readonly extras: readonly (readonly support.ExtensionPlan[])[];
  readonly flaw: Flaw;
  readonly place: number;
  readonly isExact: boolean;
  readonly hasUsage: boolean;
  readonly isCritical: boolean;
  readonly order: number;
}

/** From the certificate itself (0) to the root. */
const chainPlan: fc.Arbitrary<ChainPlan> = fc.integer({ min: 2, max: 5 }).chain((length) => {
  const each = { minLength: length, maxLength: length };
  return fc.record({
    keys: fc.array(fc.constantFrom(...support.signers), each),
    texts: fc.array(support.name, each),
    extras: fc.array(support.harmless, each),
    flaw: fc.oneof(fc.constant("none" as const), fc.constantFrom(...flaws), fc.constantFrom(...flaws)),
    place: fc.nat({ max: length - 1 }),
    isExact: fc.boolean(),
    hasUsage: fc.boolean(),
    isCritical: fc.boolean(),
    order: fc.nat({ max: 3 }),
  });
});

/** The chain, and whether its flaw fits at its place: a leaf need not be an authority, a root has no issuer. */
async function chainOf(
  plan: ChainPlan,
): Promise<{ readonly chain: Chain; readonly isSound: boolean; readonly isRootSound: boolean }> {
  const { keys, flaw, isExact } = plan;
  const top = keys.length - 1;
  const place = flaw === "too deep" ? top : plan.place;
  const fits: Readonly<Record<Flaw, boolean>> = {
    none: false,
    expired: true,
    early: true,
    forged: place < top,
    renamed: place < top,
    "no authority": place > 0,
    "no constraints": place > 0,
    "no usage": place > 0,
    "too deep": place > 1,
    unknown: true,
    missing: place > 0 && place < top,
  };
  const isFlawed = fits[flaw];
  const is = (one: Flaw, at: number): boolean => isFlawed && flaw === one && place === at;
  // A number in each name: no two of a chain are equal.
  const names = plan.texts.map((text, at): support.NamePlan => [
    ...text,
    [{ oid: "2.5.4.5", type: "printable", text: `${at}` }],
  ]);
  const nameAt = (at: number): support.NamePlan => names[Math.min(at, top)] as support.NamePlan;
  const keyAt = (at: number): support.Pair => keys[Math.min(at, top)] as support.Pair;
  const ders = await Promise.all(
    keys.map((key, at) => {
      const below = at - 1; // intermediates below it
      const depth = is("too deep", at) ? below - 1 : isExact ? below : undefined;
      const authority = [
        ...(is("no constraints", at)
          ? []
          : [
              support.constraints(!is("no authority", at), is("no authority", at) ? undefined : depth, plan.isCritical),
            ]),
        ...(is("no usage", at)
          ? [support.keyUsage(0x80)]
          : plan.hasUsage && !is("no constraints", at) && !is("no authority", at)
            ? [support.keyUsage(0x06)]
            : []),
      ];
      const extras = (plan.extras[at] as readonly support.ExtensionPlan[]).filter(
        ({ oid }) => at === 0 || oid !== "2.5.29.37",
      );
      const signer = keyAt(at + 1);
      return support.certify(
        {
          serial: Uint8Array.of(at + 1),
          subject: nameAt(at),
          issuer: is("renamed", at) ? nameAt(at) : nameAt(at + 1),
          notBeforeMs: is("early", at) ? nowMs + 1_000 : nowMs,
          notAfterMs: is("expired", at) ? nowMs - 1_000 : nowMs + 1_000,
          key,
          extensions: [
            ...(at === 0 ? [] : authority),
            ...extras,
            ...(is("unknown", at)
              ? [{ oid: `${support.unknownOid}.1`, isCritical: true, value: Uint8Array.of(5, 0) }]
              : []),
          ],
        },
        is("forged", at) ? (support.signers.find((other) => other !== signer) as support.Pair) : signer,
      );
    }),
  );
  const between = ders.slice(1, top).filter((_, at) => !is("missing", at + 1));
  const stranger = ders[top] as Buffer; // many servers send their root as well
  const intermediates = [between, between.toReversed(), [...between, ...between], [stranger, ...between.toReversed()]][
    plan.order
  ] as Buffer[];
  return {
    chain: { leaf: ders[0] as Buffer, intermediates, root: ders[top] as Buffer },
    isSound: !isFlawed,
    isRootSound: !isFlawed || place < top || flaw === "too deep",
  };
}

withOpenssl("a chain of PKI.js is accepted exactly when it is sound, as OpenSSL does", async (t) => {
  // PKI.js ignores path lengths and critical extensions, and in some chains the dates and constraints of authorities.
  const noticed = new Set<Flaw>(["none", "forged", "renamed", "missing"]);
  const counts = { sound: 0, flawed: 0 };
  await fc.assert(
    fc.asyncProperty(chainPlan, async (plan) => {
      const { chain, isSound, isRootSound } = await chainOf(plan);
      counts[isSound ? "sound" : "flawed"] += 1;
      if (isSound || noticed.has(plan.flaw)) same(await isPkijsAccepting(chain, nowMs), isSound, "PKI.js accepts");
      same(isOpensslAccepting(chain, nowMs), isSound, "OpenSSL accepts");
      same(isOursAccepting(chain, nowMs), isSound, "we accept");
      same(checkRoot(pemOf([chain.root]), null, nowMs).kind, isRootSound ? "root" : "refused", "root");
    }),
    { ...report, numRuns: 100 },
  );
  t.true(counts.sound > 20 && counts.flawed > 20, JSON.stringify(counts));
});

/** Keys of OpenSSL's own certificates and requests, and whether a cluster may use them. */
const opensslKeys = [
  ...support.subjectKeys.map((key) => ({ key, isUsable: key.publicKey.asymmetricKeyType !== "ed25519" })),
  { key: support.pair(generateKeyPairSync("ec", { namedCurve: "secp256k1" })), isUsable: false },
  { key: support.pair(generateKeyPairSync("rsa", { modulusLength: 1024 })), isUsable: false },
];

withOpenssl("we read each field of certificates and requests from the openssl command", async (t) => {
  const text = support.anyText.filter((each) => each !== "" && !each.includes("\u0000"));
  const wishes = fc.record({
    by: fc.constantFrom(...opensslKeys),
    name: text,
    cluster: text,
    role: fc.constantFrom("swarm-manager", "swarm-worker", "other"),
    serial: fc.bigInt({ min: 1n, max: 2n ** 159n }),
    hash: fc.constantFrom("-sha256", "-sha384", "-sha512", "-sha1"),
    joint: fc.constantFrom("/", "+"),
  });
  await fc.assert(
    fc.asyncProperty(wishes, async ({ by: { key, isUsable }, hash, joint, ...wanted }) => {
      const keyFile = put("key.pem", key.privateKey.export({ format: "pem", type: "pkcs8" }) as string);
      const quoted = (value: string): string => value.replaceAll(/[\\/+=]/g, "\\$&");
      const subject = `/O=${quoted(wanted.cluster)}/OU=${wanted.role}${joint}OU=second/CN=${quoted(wanted.name)}`;
      const asked = [
        "req",
        "-new",
        "-utf8",
        "-multivalue-rdn",
        "-subj",
        subject,
        "-key",
        keyFile,
        "-addext",
        "subjectAltName=DNS:a",
      ];
      const digest = key.publicKey.asymmetricKeyType === "ed25519" ? [] : [hash];
      const made = openssl(
        ...asked,
        ...digest,
        "-x509",
        "-days",
        "9",
        "-set_serial",
        `${wanted.serial}`,
        "-out",
        "made.pem",
      );
      same([made.isDone, made.isDone ? "" : made.text], [true, ""], "openssl");
      const pem = readFileSync(join(folder, "made.pem"), "utf8");
      const read = describeCertificate(pem, pem);
      if (read.kind === "malformed") throw new Error(read.reason);
      same([read.nodeId, read.organization], [wanted.name, wanted.cluster], "name");
      // DER orders the attributes of a set: the shorter one first.
      same(read.role, wanted.role === "other" || joint === "+" ? null : wanted.role, "role");
      const certificate = new X509Certificate(pem);
      same(
        [read.notBeforeMs, read.notAfterMs],
        [certificate.validFromDate.getTime(), certificate.validToDate.getTime()],
        "times",
      );
      same(read.issuerPublicKeyDer, key.spki, "key");
      same(read.verify(pem, read.notBeforeMs), true, "it leads to itself");
      const kind = checkRoot(pem, null, read.notBeforeMs).kind;
      const isRootKey = key.publicKey.asymmetricKeyType !== "ed25519" && hash !== "-sha1"; // roots may have any such key
      same(kind, isRootKey ? "root" : "refused", "root");

      same(openssl(...asked, ...digest, "-out", "request.pem").isDone, true, "openssl requests");
      const csr = pki.readCsr(readFileSync(join(folder, "request.pem")));
      same(csr.kind, isUsable && hash !== "-sha1" ? "csr" : "refused", "request");
      if (csr.kind === "csr") same(csr.publicKeyDer, key.spki, "key of the request");
    }),
    { ...report, numRuns: 30 },
  );
  t.pass();
});

test("a request of PKI.js is accepted with its key", async (t) => {
  await fc.assert(
    fc.asyncProperty(
      support.name,
      fc.constantFrom(...support.signers),
      support.harmless,
      async (subject, key, extensions) => {
        const csr = pki.readCsr(toPem(await support.request(subject, key, extensions), requestLabel));
        same(csr.kind === "csr" ? csr.publicKeyDer : csr.reason, key.spki, "key");
      },
    ),
    { ...report, numRuns: 50 },
  );
  t.pass();
});

const [mutantKey, otherKey] = support.signers as [support.Pair, support.Pair];
const mutantName: support.NamePlan = [
  [{ oid: organization, type: "utf8", text: "k3p9" }],
  [{ oid: unit, type: "printable", text: "swarm-manager" }],
  [{ oid: commonName, type: "printable", text: "n1" }],
];
const mutantPlan: support.CertificatePlan = {
  serial: Uint8Array.of(5),
  issuer: mutantName,
  subject: mutantName,
  notBeforeMs: nowMs - dayMs,
  notAfterMs: nowMs + dayMs,
  key: mutantKey,
  extensions: [
    support.constraints(true, 1),
    support.keyUsage(0x06),
    { oid: support.unknownOid, isCritical: false, value: Uint8Array.of(5, 0) },
  ],
};

/** Changes of the signed part, which is signed again, or of everything; then perhaps of single bytes. */
const mutation = fc.record({
  changes: fc.array(support.change, { minLength: 1, maxLength: 2 }),
  isSigned: fc.integer({ min: 0, max: 3 }).map((each) => each > 0),
  splice: fc.option(fc.tuple(fc.nat(), fc.nat({ max: 3 }), fc.uint8Array({ maxLength: 3 })), { freq: 1 }),
});
type Mutation = typeof mutation extends fc.Arbitrary<infer Value> ? Value : never;

function mutant(der: Buffer, { changes, isSigned, splice }: Mutation, key: support.Pair): Buffer {
  let bytes = isSigned ? support.bodyOf(der) : der;
  for (const change of changes) bytes = support.mutated(bytes, change);
  if (splice !== null && !isSigned) {
    const at = splice[0] % (bytes.length + 1);
    bytes = Buffer.concat([bytes.subarray(0, at), splice[2], bytes.subarray(at + splice[1])]);
  }
  return isSigned ? support.signedAgain(der, bytes, key) : bytes;
}

withOpenssl("mutants of certificates: never a throw, and none accepted that both others reject", async (t) => {
  const rootDer = await support.certify(mutantPlan, mutantKey);
  const extensions = [
    support.keyUsage(0x80),
    { oid: support.unknownOid, isCritical: false, value: Uint8Array.of(5, 0) },
  ];
  const plan = { ...mutantPlan, subject: [...mutantName, ...mutantName], key: otherKey, extensions };
  const leafDer = await support.certify(plan, mutantKey);
  same(isOursAccepting({ leaf: leafDer, intermediates: [], root: rootDer }, nowMs), true, "unchanged");
  const counts = { accepted: 0, rejected: 0 };
  await fc.assert(
    fc.asyncProperty(mutation, fc.boolean(), async (wanted, isLeaf) => {
      const der = mutant(isLeaf ? leafDer : rootDer, wanted, mutantKey);
      const pem = toPem(der, label);
      issuerName(pem);
      pki.intermediatesOf(pem + pem);
      pki.validUntilMs(pem);
      try {
        certificateParts(der);
      } catch (error) {
        if (!(error instanceof DerError)) throw error;
      }
      const chain = isLeaf
        ? { leaf: der, intermediates: [], root: rootDer }
        : { leaf: leafDer, intermediates: [], root: der };
      const isAccepted = isOursAccepting(chain, nowMs);
      const isRoot = checkRoot(pem, null, nowMs).kind === "root";
      counts[isAccepted ? "accepted" : "rejected"] += 1;
      if (isAccepted && !(await isPkijsAccepting(chain, nowMs))) {
        same(isOpensslAccepting(chain, nowMs), true, `both others reject ${der.toString("base64")}`);
      }
      const alone = { leaf: der, intermediates: [], root: der };
      if (isRoot && !(await isPkijsAccepting(alone, nowMs))) {
        same(isOpensslAccepting(alone, nowMs), true, `both others reject the root ${der.toString("base64")}`);
      }
    }),
    { ...report, numRuns: 600 },
  );
  t.true(counts.accepted > 20 && counts.rejected > 20, JSON.stringify(counts));
});

withOpenssl("mutants of requests: never a throw, and none accepted that both others reject", async (t) => {
  const der = await support.request(mutantName, mutantKey, [support.constraints(false)]);
  const counts = { accepted: 0, rejected: 0 };
  await fc.assert(
    fc.asyncProperty(mutation, async (wanted) => {
      const changed = mutant(der, wanted, mutantKey);
      const isAccepted = pki.readCsr(toPem(changed, requestLabel)).kind === "csr";
      counts[isAccepted ? "accepted" : "rejected"] += 1;
      if (!isAccepted || (await isPkijsAcceptingRequest(changed))) return;
      same(isOpensslAcceptingRequest(changed), true, `both others reject ${changed.toString("base64")}`);
    }),
    { ...report, numRuns: 600 },
  );
  t.true(counts.accepted > 20 && counts.rejected > 20, JSON.stringify(counts));
});
