// Root rotation: what UpdateCluster accepts and rejects.
import test from "ava";
import { Duration } from "../../proto/gen/messages.ts";
import type { CAConfig } from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { call, refusalOf } from "../support/manager.ts";
import { bytes, rootWorld, text, wanted } from "../support/roots.ts";

test("increasing the counter that forces a rotation creates a root that the current one authenticates", async (t) => {
  const { cluster, control, update } = await rootWorld(t);
  const before = cluster();
  const after = await update({ forceRotate: 1 });
  const { rootRotation } = after.rootCa ?? {};
  t.deepEqual(after.rootCa?.caCert, before.rootCa?.caCert);
  t.deepEqual(after.rootCa?.joinTokens, before.rootCa?.joinTokens);
  t.is(after.rootCa?.lastForcedRotation, 1);
  const oldRoot = text.decode(before.rootCa?.caCert);
  const cross = pki.describeCertificate(text.decode(rootRotation?.crossSignedCaCert), oldRoot);
  t.true(cross.kind === "certificate" && cross.verify(oldRoot, Date.now()));
  // Repeating a request in progress starts nothing new, and reveals no key.
  const again = await update({});
  t.deepEqual(again.rootCa?.rootRotation, rootRotation);
  const { clusters } = await control.ListClusters({ filters: null } as never, call());
  t.is(clusters[0]?.rootCa?.rootRotation?.caKey.length, 0);
  t.is(clusters[0]?.rootCa?.caKey.length, 0);
  // A second forced rotation replaces the new root of the first.
  const replaced = await update({ forceRotate: 2 });
  t.notDeepEqual(replaced.rootCa?.rootRotation?.caCert, rootRotation?.caCert);
  t.deepEqual(replaced.rootCa?.caCert, before.rootCa?.caCert);
});

test("a custom root is accepted and cancelled with the current one, and its key is never shown", async (t) => {
  const { cluster, update } = await rootWorld(t);
  const present = {
    certificatePem: text.decode(cluster().rootCa?.caCert),
    keyPem: text.decode(cluster().rootCa?.caKey),
  };
  const root = await pki.createRoot({ nowMs: Date.now() });
  // As people paste it: with text around it.
  const pasted = await update(wanted({ ...root, certificatePem: `my root\n${root.certificatePem}\n\n` }));
  t.is(text.decode(pasted.rootCa?.rootRotation?.caCert), root.certificatePem);
  t.is(pasted.spec?.caConfig?.signingCaKey.length, 0);
  const off = await update(wanted(present));
  t.is(off.rootCa?.rootRotation, null);
  t.is(text.decode(off.rootCa?.caCert), present.certificatePem);
});

test("an invalid root is rejected with SwarmKit's code and text, and nothing is changed", async (t) => {
  const { cluster, store, update } = await rootWorld(t);
  const nowMs = Date.now();
  const [root, other] = [await pki.createRoot({ nowMs }), await pki.createRoot({ nowMs })];
  const old = await pki.createRoot({ nowMs: nowMs - 19.5 * 365 * 86_400_000 });
  const expired = await pki.createRoot({ nowMs: nowMs - 21 * 365 * 86_400_000 });
  const { csrPem, keyPem } = await pki.createKeyAndCsr();
  const leaf = await pki.issue({
    csrPem,
    rootCertificatePem: root.certificatePem,
    rootKeyPem: root.keyPem,
    nodeId: "n",
    role: "swarm-worker",
    organization: "o",
    validitySeconds: 7_200,
    nowMs,
  });
  const [presentPem, presentKey] = [text.decode(cluster().rootCa?.caCert), text.decode(cluster().rootCa?.caKey)];
  const { version } = store;
  const cases: readonly (readonly [Partial<CAConfig>, RegExp])[] = [
    [
      { signingCaKey: bytes.encode(root.keyPem) },
      /^if a signing CA key is provided, the signing CA cert must also be provided$/,
    ],
    [wanted({ certificatePem: "nothing", keyPem: root.keyPem }), /^no valid root CA certificates found$/],
    [
      wanted({ certificatePem: root.certificatePem.replace(/\n.{20}/, "\nAAAAAAAAAAAAAAAAAAAA"), keyPem: root.keyPem }),
      /^invalid root certificates/,
    ],
    [wanted({ ...root, keyPem: "nothing" }), /^malformed private key$/],
    [wanted({ ...root, keyPem: other.keyPem }), /^certificate key mismatch$/],
    [
      wanted({ certificatePem: leaf, keyPem }),
      /^error while validating Root CA Certificate: x509: certificate signed by unknown authority$/,
    ],
    [
      wanted(expired),
      /^error while validating Root CA Certificate: x509: certificate has expired or is not yet valid$/,
    ],
    [wanted(old), /^CA certificate expires too soon$/],
    [
      wanted({ ...root, certificatePem: root.certificatePem + other.certificatePem }),
      /^the desired CA certificate cannot contain multiple certificates$/,
    ],
    [
      { signingCaCert: bytes.encode(root.certificatePem) },
      /^there must be at least one valid, reachable external CA corresponding to the desired CA certificate$/,
    ],
    // Another certificate for the current key would form a chain that nobody verifies.
    [
      wanted({ certificatePem: pki.crossSign(presentPem, presentPem, presentKey), keyPem: presentKey }),
      /^Cannot update to a cert with an identical key$/,
    ],
    [{ nodeCertExpiry: Duration.create({ seconds: 3_599 }) }, /^minimum certificate expiry time is: 1h0m0s$/],
  ];
  for (const [fields, message] of cases) {
    const refused = await refusalOf(() => update(fields));
    t.is(refused?.code, Status.INVALID_ARGUMENT, String(message));
    t.regex(refused?.message ?? "", message);
  }
  t.is(store.version, version);
});
