/** An operator who replaces the root certificate by a new one, by an own one, or by an earlier one, also during a rotation. */
import {
  CAConfig,
  ClusterSpec,
  ControlService,
  KeyRotation,
  ListClustersRequest,
  UpdateClusterRequest,
  type Cluster,
} from "../../proto/gen/messages.ts";
import { isSameBytes } from "../../machines/same-message.ts";
import { Operator, type OperatorOptions } from "./operator.ts";

const text = new TextEncoder();

export class CertificateWorkload extends Operator {
  /** The operator's own roots, with keys. */
  readonly #own: Uint8Array[] = [];

  constructor(options: OperatorOptions) {
    super(options, "workload.certificates", { isFirstAtOnce: false });
  }

  protected async operate(): Promise<void> {
    const list = ListClustersRequest.create();
    const { clusters } = await this.call(ControlService.methods.ListClusters, list, "look at the root");
    const [cluster] = clusters;
    if (cluster === undefined) return;
    const drawn = this.random.pick(["forced", "forced", "own", "back", "tokens"] as const);
    const present = cluster.rootCa?.caCert ?? new Uint8Array();
    // Only a client with the current root's key can cancel a rotation with it.
    const isOwn = this.#own.some((root) => isSameBytes(root, present));
    // Cancelled during the rotation, which would rarely happen otherwise.
    const mayCallOff = isOwn && cluster.rootCa?.rootRotation != null && this.random.chance(0.6);
    const what = mayCallOff ? "back" : drawn;
    if (what === "tokens") return this.#update(cluster, {}, what);
    if (what === "back" && isOwn)
      return this.#update(cluster, { signingCaCert: present, signingCaKey: keyOf(present) }, what);
    if (what === "own") {
      const root = text.encode(`SIMULATED ROOT of the operator ${this.#own.length + 1}\n`);
      this.#own.push(root);
      return this.#update(cluster, { signingCaCert: root, signingCaKey: keyOf(root) }, what);
    }
    return this.#update(cluster, { forceRotate: (cluster.spec?.caConfig?.forceRotate ?? 0) + 1 }, "forced");
  }

  async #update(cluster: Cluster, fields: Partial<CAConfig>, what: string): Promise<void> {
    const spec = cluster.spec ?? ClusterSpec.create();
    const request = UpdateClusterRequest.create({
      clusterId: cluster.id,
      clusterVersion: cluster.meta?.version ?? null,
      spec: ClusterSpec.patch(spec, { caConfig: CAConfig.patch(spec.caConfig ?? CAConfig.create(), fields) }),
      rotation: KeyRotation.create({ workerJoinToken: what === "tokens" }),
    });
    await this.call(ControlService.methods.UpdateCluster, request, `replace the root (${what})`);
    this.mark(`root.${what}`);
  }
}

function keyOf(root: Uint8Array): Uint8Array {
  return text.encode(`SIMULATED KEY of ${new TextDecoder().decode(root)}`);
}
