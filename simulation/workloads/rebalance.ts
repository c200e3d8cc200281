/**
 * An operator who turns rebalancing on and off, for all or some services, while nodes join. The limits are short, so that a
 * simulation of minutes covers rounds, budgets and quiet times.
 */
import { rebalanceLabels } from "../../machines/orchestration/rebalancing/settings.ts";
import {
  Annotations,
  ClusterSpec,
  ControlService,
  GetClusterRequest,
  ListClustersRequest,
  ListServicesRequest,
  ServiceSpec,
  UpdateClusterRequest,
  UpdateServiceRequest,
} from "../../proto/gen/messages.ts";
import { Operator, type OperatorOptions } from "./operator.ts";

export const simRebalance = {
  settleMs: 2_000,
  quietMs: 5_000,
  roundMovesMax: 2,
  windowMovesMax: 6,
  windowMs: 30_000,
} as const;

/** Number of retries if no manager answers, and the delay between them in milliseconds. */
const attemptsMax = 40;
const retryMs = 1_000;

export class RebalanceWorkload extends Operator {
  #isOn = false;

  /** The options' operations come after the first, which turns rebalancing on. */
  constructor(options: OperatorOptions) {
    super(options, "workload.rebalance", { isFirstAtOnce: false });
  }

  override get isDone(): boolean {
    return super.isDone && this.#isOn;
  }

  override start(): void {
    void this.#switchOn().then(() => (this.#isOn = true));
    super.start();
  }

  /** Retries until rebalancing is on, without which the run would test nothing. */
  async #switchOn(): Promise<void> {
    for (let attempt = 0, isOn = false; !isOn && attempt < attemptsMax; attempt += 1) {
      await this.client.attempt(async () => {
        await this.#labelCluster();
        isOn = true;
      });
      if (!isOn) await new Promise<void>((resolve) => this.options.ports.clock.after(retryMs, resolve));
    }
  }

  async #labelCluster(): Promise<void> {
    const { methods } = ControlService;
    const { clusters } = await this.call(methods.ListClusters, ListClustersRequest.create(), "list clusters");
    const request = GetClusterRequest.create({ clusterId: clusters[0]?.id ?? "" });
    const { cluster } = await this.call(methods.GetCluster, request, "get cluster");
    if (cluster === null) return;
    const { quietMs, roundMovesMax, settleMs, windowMovesMax, windowMs } = simRebalance;
    const before = cluster.spec ?? ClusterSpec.create();
    const annotations = before.annotations ?? Annotations.create();
    const labels = {
      ...annotations.labels,
      [rebalanceLabels.mode]: "on",
      [rebalanceLabels.settle]: `${settleMs}ms`,
      [rebalanceLabels.quiet]: `${quietMs}ms`,
      [rebalanceLabels.round]: String(roundMovesMax),
      [rebalanceLabels.moves]: String(windowMovesMax),
      [rebalanceLabels.window]: `${windowMs}ms`,
    };
    const spec = ClusterSpec.patch(before, { annotations: Annotations.patch(annotations, { labels }) });
    const update = { clusterId: cluster.id, clusterVersion: cluster.meta?.version ?? null, spec };
    await this.call(methods.UpdateCluster, UpdateClusterRequest.create(update), "switch rebalancing on");
  }

  /** Excludes one service, or includes it again. */
  protected async operate(): Promise<void> {
    const { methods } = ControlService;
    const { services } = await this.call(methods.ListServices, ListServicesRequest.create(), "list services");
    const replicated = services.filter(({ spec }) => spec?.replicated != null);
    if (replicated.length === 0) return;
    const service = this.random.pick(replicated);
    const before = service.spec ?? ServiceSpec.create();
    const annotations = before.annotations ?? Annotations.create();
    const labels = { ...annotations.labels, [rebalanceLabels.mode]: this.random.chance(0.5) ? "off" : "on" };
    const spec = ServiceSpec.patch(before, { annotations: Annotations.patch(annotations, { labels }) });
    const request = { serviceId: service.id, serviceVersion: service.meta?.version ?? null, spec };
    await this.call(
      methods.UpdateService,
      UpdateServiceRequest.create(request),
      `rebalancing ${labels[rebalanceLabels.mode]} for ${service.id}`,
    );
  }
}
