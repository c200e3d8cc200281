/**
 * The leader's signer: signs nodes' requests in batches of one transaction each, so that a thousand nodes that join together
 * cost tens of appends, not a thousand.
 */
import { certificateMachine, type CertificateEvent } from "../../machines/certificates/certificate.machine.ts";
import { isUnsigned, issuanceState, roleName } from "../../machines/certificates/issuance.ts";
import {
  Certificate,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  ProposeRequest_Mode,
  type Operation,
} from "../../proto/gen/messages.ts";
import type { EffectsOf, HostedActor } from "../../runtime/host.ts";
import type { CertificateAuthority } from "./ca-port.ts";
import { proposeTimeoutMs, replacement } from "../control/write.ts";
import type { Environment, Running } from "../environment.ts";
import { noExternalCa, type ExternalCa } from "../../runtime/ports/external-ca.ts";
import { signNode } from "./node-signing.ts";

/** Maximum nodes per transaction: about 3 kB each, so well below the largest record. */
const batchMax = 100;

type Signed = { readonly node: Node; readonly pem: string };

export function startCertificateSigner(
  env: Environment,
  authority: CertificateAuthority,
  external: ExternalCa = noExternalCa,
): Running {
  const { store, host } = env;
  const log = env.telemetry.log;
  const issued = env.telemetry.metrics.counter(
    "muster_certificates_issued_total",
    "Node certificates signed and stored.",
  );
  const live = new Map<string, HostedActor<typeof certificateMachine>>();
  let queue: string[] = [];
  let isSigning = false;
  let stopped = false;

  const effects: EffectsOf<typeof certificateMachine> = {
    requestSignature: ({ nodeId }) => {
      queue.push(nodeId);
      // Requests of one burst are signed in one batch.
      if (!isSigning) env.clock.soon(() => void signQueue());
      isSigning = true;
    },
    storeRefusal: ({ nodeId, reason }) => void storeRefusal(nodeId, reason),
  };

  function tell(nodeId: string, event: CertificateEvent): void {
    const hosted = live.get(nodeId);
    if (hosted === undefined || stopped) return;
    hosted.send(event);
    if (hosted.snapshot.status !== "done") return;
    live.delete(nodeId);
    hosted.stop();
  }

  function look(node: Node): void {
    const isRotating = issuanceState(node) === IssuanceStatus_State.ROTATE;
    if (live.has(node.id)) {
      if (isUnsigned(node)) tell(node.id, { type: "csr.received" });
      // Managers sign their own certificates, so no request arrives here after they are notified to renew.
      else if (!isRotating && isRotatingHere(node.id)) tell(node.id, { type: "certificate.stored" });
      return;
    }
    if (!isRotating && !isUnsigned(node)) return;
    live.set(
      node.id,
      host.start(certificateMachine, `certificate/${node.id}`, { nodeId: node.id, isRotating }, { effects }),
    );
  }

  function isRotatingHere(nodeId: string): boolean {
    return live.get(nodeId)?.snapshot.value === "rotating";
  }

  async function signQueue(): Promise<void> {
    while (queue.length > 0 && !stopped) {
      const batch = queue.slice(0, batchMax);
      queue = queue.slice(batchMax);
      await signBatch(batch);
    }
    isSigning = false;
  }

  async function signBatch(nodeIds: readonly string[]): Promise<void> {
    for (const nodeId of nodeIds) tell(nodeId, { type: "signing.started" });
    const signed = (await Promise.all(nodeIds.map(sign))).filter((each) => each !== null);
    if (signed.length === 0 || stopped) return;
    const outcome = await write(signed.map(({ node, pem }) => replacement("node", withCertificate(node, pem))));
    for (const { node, pem } of signed) {
      if (outcome !== null) {
        tell(node.id, { type: "write.failed", reason: outcome });
        continue;
      }
      const isStored = certificateText(store.get("node", node.id)) === pem;
      if (isStored) issued.add();
      tell(node.id, { type: isStored ? "certificate.stored" : "certificate.superseded" });
    }
  }

  /** Null when there is nothing to write; the actor has been notified why. */
  async function sign(nodeId: string): Promise<Signed | null> {
    const node = store.get("node", nodeId);
    const cluster = [...store.all("cluster")][0];
    const csr = node?.certificate?.csr ?? new Uint8Array();
    // The actor is notified of the removal elsewhere.
    if (node === undefined) return null;
    if (cluster === undefined) {
      tell(nodeId, { type: "write.failed", reason: "there is no cluster object" });
      return null;
    }
    const read = authority.readCsr(csr);
    if (read.kind === "refused") {
      tell(nodeId, { type: "csr.refused", reason: read.reason });
      return null;
    }
    try {
      const role = roleName(node.certificate?.role ?? node.role);
      const pem = await signNode(cluster, { csr, nodeId, role, nowMs: env.clock.now() }, authority, external);
      return { node, pem };
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      log.error({ node: nodeId, error: reason }, "cannot sign a node's certificate");
      tell(nodeId, { type: "write.failed", reason });
      return null;
    }
  }

  /** Null on success (conflicting operations are skipped), else the reason. */
  async function write(operations: readonly Operation[]): Promise<string | null> {
    const outcome = await env.proposer.propose({
      operations,
      mode: ProposeRequest_Mode.EACH,
      timeoutMs: proposeTimeoutMs,
    });
    return outcome.kind === "committed" ? null : outcome.message;
  }

  async function storeRefusal(nodeId: string, reason: string): Promise<void> {
    const node = store.get("node", nodeId);
    if (node === undefined) return;
    const status = IssuanceStatus.create({ state: IssuanceStatus_State.FAILED, err: reason });
    const certificate = Certificate.patch(node.certificate ?? Certificate.create({}), { status });
    const outcome = await write([replacement("node", Node.patch(node, { certificate }))]);
    if (outcome !== null) {
      tell(nodeId, { type: "write.failed", reason: outcome });
      return;
    }
    const after = store.get("node", nodeId);
    const isStored = after !== undefined && issuanceState(after) === IssuanceStatus_State.FAILED;
    tell(nodeId, { type: isStored ? "refusal.stored" : "certificate.superseded" });
  }

  for (const node of store.all("node")) look(node);
  const watching = store.watch(({ changes }) => {
    for (const change of changes) {
      if (change.table !== "node") continue;
      const { action, object, old } = change;
      if (action === "remove") tell(object.id, { type: "node.removed" });
      else if (object.certificate !== old?.certificate || object.spec !== old?.spec) look(object);
    }
  });

  return {
    stop() {
      if (stopped) return;
      stopped = true;
      watching.unsubscribe();
      for (const hosted of live.values()) hosted.stop();
      live.clear();
      queue = [];
    },
  };
}

function certificateText(node: Node | undefined): string {
  return new TextDecoder().decode(node?.certificate?.certificate);
}

function withCertificate(node: Node, pem: string): Node {
  return Node.patch(node, {
    certificate: Certificate.patch(node.certificate ?? Certificate.create({}), {
      certificate: new TextEncoder().encode(pem),
      status: IssuanceStatus.create({ state: IssuanceStatus_State.ISSUED }),
    }),
  });
}
