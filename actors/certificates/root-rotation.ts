/** The leader's rotation of the root certificate: hosts the chart, watches nodes, writes nodes and the cluster object. */
import { isIssuedBy } from "../../machines/certificates/issuer.ts";
import {
  rootRotationLimits,
  rootRotationMachine,
  shouldNotify,
  type RootRotationEvent,
} from "../../machines/certificates/root-rotation.machine.ts";
import { unclaimedTimes } from "../../machines/certificates/unclaimed.ts";
import {
  Certificate,
  Cluster,
  IssuanceStatus,
  IssuanceStatus_State,
  JoinTokens,
  Node,
  ProposeRequest_Mode,
  RootCA,
  type Operation,
  type RootRotation,
} from "../../proto/gen/messages.ts";
import type { CertificateAuthority } from "./ca-port.ts";
import type { IssuerName } from "../../lib/pki/index.ts";
import { commit, proposeTimeoutMs, replacement } from "../control/write.ts";
import type { Environment, Running } from "../environment.ts";
import { sentence } from "../sentence.ts";
import { UnclaimedNodes } from "./unclaimed-nodes.ts";

const text = new TextDecoder();

export function startRootRotation(env: Environment, authority: CertificateAuthority): Running {
  const { store, telemetry } = env;
  const random = env.random.fork("root-rotation");
  const left = telemetry.metrics.gauge(
    "muster_root_rotation_nodes_left",
    "Nodes that do not have a certificate of the next root yet; 0 outside a rotation.",
  );
  const unclaimed = new UnclaimedNodes(env);
  let stopped = false;
  /** The rotation whose nodes are counted; null outside one. */
  let present: { readonly rotation: RootRotation; readonly issuer: IssuerName } | null = null;
  /** Ids of nodes without a certificate of the new root. */
  const behind = new Set<string>();

  const clusterOf = (): Cluster | undefined => [...store.all("cluster")][0];

  function isBehind(node: Node): boolean {
    if (present === null) return false;
    if (node.description !== null) return !isIssuedBy(node.description.tlsInfo, present.issuer);
    const waitedMs = unclaimed.waitedMs(node.id);
    return waitedMs !== null && waitedMs < unclaimedTimes.holdsRotationMsMax;
  }

  /** Whether the next root has changed. */
  function look(): boolean {
    const rotation = clusterOf()?.rootCa?.rootRotation ?? null;
    if (rotation === null) {
      const isNew = present !== null;
      present = null;
      behind.clear();
      left.set(0);
      return isNew;
    }
    const pem = text.decode(rotation.caCert);
    const isNew = present === null || text.decode(present.rotation.caCert) !== pem;
    const issuer = authority.issuerName(pem);
    if (issuer === null) {
      telemetry.log.error({}, "cannot read the next root certificate; not rotating");
      return false;
    }
    present = { rotation, issuer };
    if (!isNew) return false;
    behind.clear();
    for (const node of store.all("node")) if (isBehind(node)) behind.add(node.id);
    left.set(behind.size);
    return true;
  }

  look();
  const hosted = env.host.start(
    rootRotationMachine,
    "root-rotation",
    { isWanted: present !== null },
    {
      effects: {
        // Deferred out of the chart's step: the answer must find it in the state that asked.
        notifyNodes: () => env.clock.soon(() => void notifyNodes()),
        switchRoot: () => env.clock.soon(() => void switchRoot()),
      },
    },
  );

  function send(event: RootRotationEvent): void {
    if (!stopped) hosted.send(event);
  }

  async function notifyNodes(): Promise<void> {
    if (stopped || present === null) return;
    for (const id of behind) {
      const node = store.get("node", id);
      if (node === undefined || !isBehind(node)) behind.delete(id);
    }
    left.set(behind.size);
    if (behind.size === 0) return send({ type: "nodes.renewed" });
    const operations: Operation[] = [];
    for (const id of behind) {
      const node = store.get("node", id);
      if (node === undefined || !shouldNotify(node)) continue;
      const status = IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE });
      const certificate = Certificate.patch(node.certificate ?? Certificate.create({}), { status });
      operations.push(replacement("node", Node.patch(node, { certificate })));
      if (operations.length === rootRotationLimits.batchMax) break;
    }
    if (operations.length === 0) return send({ type: "batch.notified", notified: 0 });
    // A concurrent write to a node wins; the node is notified in the next round.
    const outcome = await env.proposer.propose({
      operations,
      mode: ProposeRequest_Mode.EACH,
      timeoutMs: proposeTimeoutMs,
    });
    if (outcome.kind === "committed") send({ type: "batch.notified", notified: operations.length - outcome.skipped });
    else send({ type: "write.failed", reason: outcome.message });
  }

  async function switchRoot(): Promise<void> {
    if (stopped || present === null) return;
    const cluster = clusterOf();
    const rootCa = cluster?.rootCa ?? null;
    const rotation = rootCa?.rootRotation ?? null;
    // Changed meanwhile: `look` has noticed it, and the chart is in another state.
    if (cluster === undefined || rootCa === null || rotation === null) return;
    if (behind.size > 0) return send({ type: "write.failed", reason: "a node registered with an older certificate" });
    try {
      // Conditional on the version just read, so that a concurrent change of the root is not overwritten.
      await commit(
        env,
        { traceparent: "" },
        replacement("cluster", Cluster.patch(cluster, { rootCa: switched(rootCa, rotation) })),
      );
      telemetry.log.info({}, "rotated the root certificate");
    } catch (error) {
      send({ type: "write.failed", reason: sentence(error) });
    }
  }

  /** R1 of the chart: both tokens pin the root, so both change. */
  function switched(before: RootCA, rotation: RootRotation): RootCA {
    const token = (): string => authority.makeJoinToken(rotation.caCert, random.bytes(authority.joinSecretBytes));
    const worker = token();
    const parsed = authority.parseJoinToken(worker);
    return RootCA.create({
      caCert: rotation.caCert,
      caKey: rotation.caKey,
      caCertHash: parsed.kind === "token" ? `sha256:${parsed.digestHex}` : "",
      joinTokens: JoinTokens.create({ worker, manager: token() }),
      lastForcedRotation: before.lastForcedRotation,
    });
  }

  const watching = store.watch(({ changes }) => {
    const isRootChanged = changes.some(
      (change) => change.table === "cluster" && change.object.rootCa !== change.old?.rootCa,
    );
    if (isRootChanged && look()) send({ type: present === null ? "rotation.over" : "rotation.wanted" });
    if (present === null) return;
    const before = behind.size;
    for (const change of changes) {
      if (change.table !== "node") continue;
      if (change.action === "remove" || !isBehind(change.object)) behind.delete(change.object.id);
      else behind.add(change.object.id);
    }
    if (behind.size === before) return;
    left.set(behind.size);
    if (behind.size === 0) send({ type: "nodes.renewed" });
  });

  return {
    stop() {
      if (stopped) return;
      stopped = true;
      watching.unsubscribe();
      unclaimed.stop();
      hosted.stop();
      left.set(0);
    },
  };
}
