// Credentials that a node shows a NATS of the cluster: labels are those of lib/pki/presented.ts.
import test from "ava";
import { createKeyAndCsr, createRoot, describeCertificate, issue } from "../../lib/pki/index.ts";
import { isSignedBy, joinerId, knowsToken, presentJoiner, presentNode, readClaim } from "../../lib/pki/presented.ts";

const challenge = { nonce: "n1", server: "AA:BB" };

async function node(nodeId: string) {
  const root = await createRoot();
  const { csrPem, keyPem } = await createKeyAndCsr();
  const certificatePem = await issue({
    csrPem,
    rootCertificatePem: root.certificatePem,
    rootKeyPem: root.keyPem,
    nodeId,
    role: "swarm-worker",
    organization: "c1",
    nowMs: Date.now(),
    validitySeconds: 3_600,
  });
  return { certificatePem, keyPem };
}

test("PR1: a node's signature is valid for its own certificate, the server and the connection alone", async (t) => {
  const [one, other] = await Promise.all([node("n1"), node("n2")]);
  const { signature, token } = presentNode(one, challenge);
  const claim = readClaim(token);
  t.deepEqual(claim, { kind: "node", chainPem: one.certificatePem });
  t.true(isSignedBy(one.certificatePem, signature, [{ nonce: "n1", server: "older" }, challenge]));
  t.false(isSignedBy(one.certificatePem, signature, [{ ...challenge, nonce: "n2" }]));
  t.false(isSignedBy(one.certificatePem, signature, [{ ...challenge, server: "AA:BC" }]));
  t.false(isSignedBy(other.certificatePem, signature, [challenge]));
  t.false(isSignedBy("garbage", signature, [challenge]));
  t.false(isSignedBy(one.certificatePem, "garbage", [challenge]));
});

test("PR1: a joiner's proof is valid for its id, its token and the connection alone, and has no part of the token", (t) => {
  const joiner = joinerId("abc");
  const { signature, token } = presentJoiner(joiner, "SWMTKN-1-secret", challenge);
  t.deepEqual(readClaim(token), { kind: "joiner", joiner });
  t.notRegex(token + signature, /secret/);
  t.true(knowsToken(joiner, signature, ["another", "SWMTKN-1-secret"], challenge));
  t.false(knowsToken(joiner, signature, ["another"], challenge));
  t.false(knowsToken(joinerId("abd"), signature, ["SWMTKN-1-secret"], challenge));
  t.false(knowsToken(joiner, signature, ["SWMTKN-1-secret"], { nonce: "n2" }));
  // A cluster without a token for that role.
  t.false(knowsToken(joiner, presentJoiner(joiner, "", challenge).signature, [""], challenge));
});

test("claims of other forms are none", (t) => {
  for (const token of [
    "",
    "node.",
    "node.a b",
    "joiner.n1",
    "joiner.join-a.b",
    "joiner.join->",
    `node.${"a".repeat(20_000)}`,
  ])
    t.is(readClaim(token), null, token.slice(0, 20));
});

test("PR2: the key that signs is that of the certificate by which a node is identified, however the chain is written", async (t) => {
  const [evil, victim] = await Promise.all([node("n1"), node("n2")]);
  const { signature } = presentNode(evil, challenge);
  const disguises = {
    "its certificate does not begin a line": ` ${victim.certificatePem.trimEnd()} \n${evil.certificatePem}`,
    "the signer's has another label": `${evil.certificatePem.replaceAll(" CERTIFICATE-", " X509 CERTIFICATE-")}${victim.certificatePem}`,
    "the signer's is one that OpenSSL trusts": `${evil.certificatePem.replaceAll(" CERTIFICATE-", " TRUSTED CERTIFICATE-")}${victim.certificatePem}`,
    "on one line": `${victim.certificatePem.replaceAll("\n", " ")}\n${evil.certificatePem}`,
  };
  for (const [which, chainPem] of Object.entries(disguises)) {
    const identified = describeCertificate(chainPem);
    const isVictim = identified.kind === "certificate" && identified.nodeId === "n2";
    t.true(isVictim, `${which}: identified as the victim`);
    t.false(isSignedBy(chainPem, signature, [challenge]), which);
  }
});
