import { X509Certificate, createPrivateKey, createPublicKey, generateKeyPairSync } from "node:crypto";
import test from "ava";
import fc from "fast-check";
import {
  createKeyAndCsr,
  createRoot,
  describeCertificate,
  issue,
  readCsr,
  renewalInstant,
  type CertificateDescription,
} from "../../lib/pki/index.ts";
import { certificateParts } from "../../lib/pki/certificate.ts";
import { DerError, DerReader, Tag, element, oid, time, unsignedInteger } from "../../lib/pki/der.ts";
import { pemBlocks, toPem } from "../../lib/pki/pem.ts";

const nowMs = Date.UTC(2026, 4, 17, 12, 34, 56);
const hourMs = 3_600_000;
const organization = "k3p9xq2m5n7r1t8v0w4y6z2b5";

async function issued(role: "swarm-worker" | "swarm-manager", nodeId = "n1") {
  const root = await createRoot({ nowMs });
  const { keyPem, csrPem } = await createKeyAndCsr();
  const pem = await issue({
    csrPem,
    rootCertificatePem: root.certificatePem,
    rootKeyPem: root.keyPem,
    nodeId,
    role,
    organization,
    validitySeconds: 7_776_000,
    nowMs,
  });
  return { root, keyPem, csrPem, pem };
}

function described(pem: string, rootPem?: string): CertificateDescription {
  const outcome = describeCertificate(pem, rootPem);
  if (outcome.kind === "malformed") throw new Error(outcome.reason);
  return outcome;
}

test("a root is what engines expect: self-signed, named swarm-ca, 20 years from 5 minutes ago", async (t) => {
  const { certificatePem, keyPem } = await createRoot({ nowMs });
  const certificate = new X509Certificate(certificatePem);
  t.is(certificate.subject, "CN=swarm-ca");
  t.is(certificate.issuer, "CN=swarm-ca");
  t.true(certificate.ca);
  t.true(certificate.verify(certificate.publicKey));
  t.true(certificate.checkPrivateKey(createPrivateKey(keyPem)));
  t.is(certificate.validFromDate.getTime(), Date.UTC(2026, 4, 17, 12, 29));
  t.is(certificate.validToDate.getTime() - certificate.validFromDate.getTime(), 630_720_000_000);
  t.falsy(certificate.keyUsage); // no extended key usage: it would restrict what the root may sign
  t.is(certificate.publicKey.asymmetricKeyDetails?.namedCurve, "prime256v1");
});

test("a worker's certificate names its cluster, role and node, for both ends of TLS", async (t) => {
  const { pem, root, keyPem } = await issued("swarm-worker", "node7");
  const certificate = new X509Certificate(pem);
  t.is(certificate.subject, `O=${organization}\nOU=swarm-worker\nCN=node7`);
  t.is(certificate.subjectAltName, "DNS:swarm-worker, DNS:node7");
  t.deepEqual([...certificate.keyUsage].sort(), ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"]);
  t.false(certificate.ca);
  t.true(certificate.checkPrivateKey(createPrivateKey(keyPem)));
  t.true(certificate.verify(new X509Certificate(root.certificatePem).publicKey));
});

test("a manager's certificate also has the name swarm-ca", async (t) => {
  const { pem } = await issued("swarm-manager");
  t.is(new X509Certificate(pem).subjectAltName, "DNS:swarm-manager, DNS:n1, DNS:swarm-ca");
});

test("a certificate starts an hour early and lasts the whole validity from now, on whole minutes", async (t) => {
  const { pem } = await issued("swarm-worker");
  const { notBeforeMs, notAfterMs } = described(pem);
  t.is(notBeforeMs, Date.UTC(2026, 4, 17, 11, 34));
  t.is(notAfterMs, Date.UTC(2026, 4, 17, 12, 34) + 7_776_000_000);
});

test("P2: the issuer in a certificate is the root's subject byte for byte, also in another string type", async (t) => {
  // A foreign root, whose name is a UTF8String where ours would be a PrintableString.
  const own = await createRoot({ nowMs });
  const der = Buffer.from(pemBlocks(own.certificatePem, "CERTIFICATE")[0] as Buffer);
  const name = certificateParts(der).subjectDer;
  for (let at = der.indexOf(name); at !== -1; at = der.indexOf(name, at + 1))
    der[at + name.length - "swarm-ca".length - 2] = Tag.utf8String;
  const { csrPem } = await createKeyAndCsr();
  const pem = await issue({
    csrPem,
    rootCertificatePem: toPem(der, "CERTIFICATE"),
    rootKeyPem: own.keyPem,
    nodeId: "n1",
    role: "swarm-worker",
    organization,
    validitySeconds: 3_600,
    nowMs,
  });
  const subject = certificateParts(der).subjectDer;
  t.notDeepEqual(subject, name);
  t.deepEqual(described(pem).issuerSubjectDer, subject);
});

test("an RSA root and a P-384 root sign certificates that verify", async (t) => {
  const p256 = await createRoot({ nowMs });
  for (const pair of [
    generateKeyPairSync("rsa", { modulusLength: 2048 }),
    generateKeyPairSync("ec", { namedCurve: "P-384" }),
  ]) {
    const spki = certificateParts(pemBlocks(p256.certificatePem, "CERTIFICATE")[0] as Buffer).publicKeyDer;
    const der = pemBlocks(p256.certificatePem, "CERTIFICATE")[0] as Buffer;
    const fields = new DerReader(der).enter().enter();
    const parts: Uint8Array[] = [];
    while (!fields.isAtEnd) {
      const { raw } = fields.read();
      parts.push(Buffer.from(raw).equals(spki) ? pair.publicKey.export({ format: "der", type: "spki" }) : raw);
    }
    // Its own signature is wrong, which does not matter for signing with it.
    const rest = new DerReader(der).enter();
    rest.read();
    const rootPem = toPem(
      element(Tag.sequence, element(Tag.sequence, ...parts), rest.read().raw, rest.read().raw),
      "CERTIFICATE",
    );
    const { csrPem } = await createKeyAndCsr();
    const pem = await issue({
      csrPem,
      rootCertificatePem: rootPem,
      rootKeyPem: pair.privateKey.export({ format: "pem", type: "pkcs8" }) as string,
      nodeId: "n1",
      role: "swarm-worker",
      organization,
      validitySeconds: 3_600,
      nowMs,
    });
    t.true(new X509Certificate(pem).verify(pair.publicKey));
    t.true(described(pem).verify(rootPem, nowMs));
  }
});

test("a root with another root's key cannot sign", async (t) => {
  const [root, other] = [await createRoot({ nowMs }), await createRoot({ nowMs })];
  const { csrPem } = await createKeyAndCsr();
  const request = { csrPem, nodeId: "n1", role: "swarm-worker", organization, validitySeconds: 3_600, nowMs } as const;
  await t.throwsAsync(issue({ ...request, rootCertificatePem: root.certificatePem, rootKeyPem: other.keyPem }), {
    message: /does not match/,
  });
});

test("a request has the size and form of an engine's, and carries its key", async (t) => {
  const { keyPem, csrPem } = await createKeyAndCsr();
  t.true(csrPem.length >= 322 && csrPem.length <= 330, `${csrPem.length} bytes`);
  const outcome = readCsr(Buffer.from(csrPem));
  if (outcome.kind === "refused") return t.fail(outcome.reason);
  const own = createPublicKey(createPrivateKey(keyPem)).export({ format: "der", type: "spki" });
  t.deepEqual(Buffer.from(outcome.publicKeyDer), own);
  return undefined;
});

test("requests parsed in turn each yield their own key, as text and as bytes", async (t) => {
  const [one, other] = [await createKeyAndCsr(), await createKeyAndCsr()];
  const keyOf = (pem: Uint8Array | string): string => {
    const outcome = readCsr(pem);
    return outcome.kind === "csr" ? Buffer.from(outcome.publicKeyDer).toString("hex") : outcome.reason;
  };
  const [first, second] = [keyOf(one.csrPem), keyOf(other.csrPem)];
  t.not(first, second);
  t.deepEqual([one.csrPem, one.csrPem, other.csrPem, Buffer.from(one.csrPem), Buffer.from(other.csrPem)].map(keyOf), [
    first,
    first,
    second,
    first,
    second,
  ]);
});

test("an invalid request is rejected with a reason", async (t) => {
  const { csrPem } = await createKeyAndCsr();
  const { certificatePem } = await createRoot({ nowMs });
  const der = pemBlocks(csrPem, "CERTIFICATE REQUEST")[0] as Buffer;
  const bad = [
    "",
    "CSR",
    certificatePem,
    csrPem + csrPem,
    toPem(der.subarray(0, -1), "CERTIFICATE REQUEST"),
    toPem(Buffer.concat([der, der]), "CERTIFICATE REQUEST"),
  ];
  for (const text of bad) t.is(readCsr(text).kind, "refused", text);
  const ed25519 = generateKeyPairSync("ed25519").publicKey.export({ format: "der", type: "spki" });
  t.is(readCsr(toPem(ed25519, "CERTIFICATE REQUEST")).kind, "refused");
});

test("P1: a request changed anywhere is rejected", async (t) => {
  const { csrPem } = await createKeyAndCsr();
  const der = pemBlocks(csrPem, "CERTIFICATE REQUEST")[0] as Buffer;
  for (let at = 0; at < der.length; at += 1) {
    const changed = Buffer.from(der);
    changed[at] = (changed[at] as number) ^ 0x01;
    t.is(readCsr(toPem(changed, "CERTIFICATE REQUEST")).kind, "refused", `byte ${at}`);
  }
});

test("a description has a certificate's subject, validity and issuer, and whether a root authenticates it now", async (t) => {
  const { pem, root } = await issued("swarm-worker", "n9");
  const other = await createRoot({ nowMs });
  const about = described(pem, root.certificatePem);
  const rootParts = certificateParts(pemBlocks(root.certificatePem, "CERTIFICATE")[0] as Buffer);
  t.like(about, { nodeId: "n9", role: "swarm-worker", organization });
  t.deepEqual(about.issuerSubjectDer, rootParts.subjectDer);
  t.deepEqual(about.issuerPublicKeyDer, rootParts.publicKeyDer);
  t.is(described(pem, other.certificatePem).issuerPublicKeyDer, null);
  t.true(about.verify(root.certificatePem, nowMs));
  t.true(about.verify(other.certificatePem + root.certificatePem, nowMs));
  t.false(about.verify(other.certificatePem, nowMs)); // of the same name, but another key
  t.false(about.verify("", nowMs));
  t.false(about.verify(root.certificatePem, nowMs - 2 * hourMs));
  t.false(about.verify(root.certificatePem, nowMs + 7_776_000_000));
});

test("no root authenticates a certificate that a node signed with its own", async (t) => {
  const { root, keyPem, pem } = await issued("swarm-manager");
  const { csrPem } = await createKeyAndCsr();
  const forged = await issue({
    csrPem,
    rootCertificatePem: pem,
    rootKeyPem: keyPem,
    nodeId: "n2",
    role: "swarm-manager",
    organization,
    validitySeconds: 7_776_000,
    nowMs,
  });
  t.true(new X509Certificate(forged).verify(new X509Certificate(pem).publicKey));
  const about = described(forged + pem, root.certificatePem);
  t.false(about.verify(root.certificatePem, nowMs));
  t.false(about.verify(pem, nowMs));
  t.is(about.issuerPublicKeyDer, null);
});

test("text that is not a certificate is described as malformed", (t) => {
  t.is(describeCertificate("").kind, "malformed");
  t.is(describeCertificate(toPem(Buffer.from("hello"), "CERTIFICATE")).kind, "malformed");
});

test("a node renews at a whole minute between half and four fifths of its validity", (t) => {
  const validity = { notBeforeMs: 0, notAfterMs: 10 * 60_000 };
  t.is(renewalInstant(validity, 0), 5 * 60_000);
  t.is(renewalInstant(validity, 0.34), 6 * 60_000);
  t.is(renewalInstant(validity, 0.999), 7 * 60_000);
  t.is(renewalInstant({ notBeforeMs: 1_000, notAfterMs: 61_000 }, 0.999), 1_000); // too short to draw from: at once
});

test("times are written short before 2050 and long from then on", (t) => {
  t.is(Buffer.from(time(Date.UTC(2049, 11, 31, 23, 59, 59))).toString("latin1"), "\x17\x0d491231235959Z");
  t.is(Buffer.from(time(Date.UTC(2050, 0, 1))).toString("latin1"), "\x18\x0f20500101000000Z");
});

test("identifiers and integers are written in their shortest form", (t) => {
  t.deepEqual(oid("1.2.840.113549.1.1.11"), Uint8Array.from([6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11]));
  t.deepEqual(unsignedInteger(Uint8Array.of(0, 0, 0x80)), Uint8Array.of(2, 2, 0, 0x80));
  t.deepEqual(unsignedInteger(Uint8Array.of(0)), Uint8Array.of(2, 1, 0));
});

test("D1: the reader reads what the writer writes, at every length", (t) => {
  for (const length of [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x10000]) {
    const contents = new Uint8Array(length).fill(5);
    const reader = new DerReader(element(Tag.octetString, contents));
    t.is(Buffer.compare(reader.read(Tag.octetString).contents, contents), 0);
    reader.finish();
  }
});

test("D1: the reader answers any bytes with an element or a DerError", (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      try {
        const { raw } = new DerReader(bytes).read();
        return raw.length <= bytes.length;
      } catch (error) {
        return error instanceof DerError;
      }
    }),
    { numRuns: 2_000, seed: 1 },
  );
  t.throws(() => new DerReader(Uint8Array.of(0x30, 0x80, 0, 0)).read(), { instanceOf: DerError }); // indefinite length
  t.throws(() => new DerReader(Uint8Array.of(0x04, 0x81, 0x01, 0)).read(), { instanceOf: DerError }); // length not shortest
});
