// How the command line edits the cluster's settings and displays the progress of a root rotation.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { UsageError } from "../../lib/user-error.ts";
import { rotationLines, rotationProgress } from "../../cli/root-rotation.ts";
import { parseExternalCa, withCaSettings, withSettings } from "../../cli/swarm/settings.ts";
import { clusterObject } from "../../lib/docker-objects/cluster.ts";
import {
  CAConfig,
  Cluster,
  ClusterSpec,
  Duration,
  Node,
  NodeDescription,
  NodeTLSInfo,
  RootCA,
  RootRotation,
} from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";

const bytes = new TextEncoder();

test("an external CA is parsed as by Docker's client, and rejected in its words", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-cli-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [good, bad] = [join(folder, "good.pem"), join(folder, "bad.pem")];
  writeFileSync(good, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  writeFileSync(bad, "nothing\n");
  const parsed = parseExternalCa(`protocol=CFSSL,"url=https://ca:1/a,b",label=x,cacert=${good}`);
  t.is(parsed.url, "https://ca:1/a,b");
  t.deepEqual(parsed.options, { label: "x" });
  t.true(parsed.caCert.length > 0);
  for (const [text, message] of [
    ["url=https://ca", "the external-ca option needs a protocol= parameter"],
    ["protocol=cfssl", "the external-ca option needs a url= parameter"],
    ["protocol=acme,url=https://ca", "unrecognized external CA protocol acme"],
    ["protocol", "invalid field 'protocol' must be a key=value pair"],
    [`protocol=cfssl,url=https://ca,cacert=${bad}`, "CA cert for external CA must be in PEM format"],
  ] as const)
    t.throws(() => parseExternalCa(text), { instanceOf: UsageError, message });
});

test("omitted settings stay, and those of an external CA apply to the root requested with it", (t) => {
  const spec = ClusterSpec.create({ caConfig: CAConfig.create({ forceRotate: 3 }) });
  t.is(withSettings(spec, {}), spec);
  const next = withSettings(spec, {
    "cert-expiry": "48h",
    "dispatcher-heartbeat": "10s",
    "task-history-limit": "-1",
    "snapshot-interval": "100",
    "max-snapshots": "2",
  });
  t.is(next.caConfig?.forceRotate, 3);
  t.is(next.caConfig?.nodeCertExpiry?.seconds, 172_800);
  t.is(next.dispatcher?.heartbeatPeriod?.seconds, 10);
  t.is(next.orchestration?.taskHistoryRetentionLimit, -1);
  t.like(next.raft, { snapshotInterval: 100, keepOldSnapshots: 2 });
  const root = bytes.encode("root");
  const external = withCaSettings(spec, { "external-ca": ["protocol=cfssl,url=https://ca"] }, root);
  t.deepEqual(external.caConfig?.externalCas[0]?.caCert, root);
});

test("the bars of a rotation show which nodes have renewed, and which trust the new root only after the switch", async (t) => {
  const [old, next] = await Promise.all([0, 1].map(() => pki.createRoot({ nowMs: Date.now() })));
  const rootOf = (pem = ""): Uint8Array => bytes.encode(pem);
  const node = (id: string, trusts = "", issuer = ""): Node => {
    const name = pki.issuerName(issuer);
    const tlsInfo = NodeTLSInfo.create({
      trustRoot: rootOf(trusts),
      certIssuerSubject: name?.subjectDer ?? new Uint8Array(),
      certIssuerPublicKey: name?.publicKeyDer ?? new Uint8Array(),
    });
    return Node.create({ id, description: NodeDescription.create({ tlsInfo }) });
  };
  const [from, to] = [old?.certificatePem ?? "", next?.certificatePem ?? ""];
  const rotating = Cluster.create({
    spec: ClusterSpec.create({ caConfig: CAConfig.create({ nodeCertExpiry: Duration.create({ seconds: 3_600 }) }) }),
    rootCa: RootCA.create({ caCert: rootOf(from), rootRotation: RootRotation.create({ caCert: rootOf(to) }) }),
  });
  const during = rotationProgress(rotating, [node("a", from, to), node("b", from, from)]);
  t.like(during, { total: 2, renewed: 1, trusting: 0, isDone: false });
  t.deepEqual(
    during.behind.map(({ id }) => id),
    ["b"],
  );
  const [, renewed, trusting] = rotationLines(during);
  t.is(renewed, `  rotated TLS certificates:  [${"=".repeat(24)}>${" ".repeat(25)}] 1/2 nodes`);
  t.is(trusting, `  rotated CA certificates:   [${" ".repeat(50)}] 0/2 nodes`);
  // As in `docker info`: the root to come, and that it is not yet in use.
  const shown = clusterObject(rotating) as { TLSInfo: { TrustRoot: string }; RootRotationInProgress: boolean };
  t.is(shown.TLSInfo.TrustRoot, to);
  t.true(shown.RootRotationInProgress);

  const switched = Cluster.patch(rotating, { rootCa: RootCA.create({ caCert: rootOf(to) }) });
  t.like(rotationProgress(switched, [node("a", to, to), node("b", from, to)]), {
    renewed: 2,
    trusting: 1,
    isDone: false,
  });
  t.true(rotationProgress(switched, [node("a", to, to)]).isDone);
});
