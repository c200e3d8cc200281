/**
 * A client with services whose tasks have health checks: creates them, updates them to unhealthy versions, and removes them.
 */
import {
  Annotations,
  Any,
  ControlService,
  CreateServiceRequest,
  DriverSpec,
  Duration,
  GenericRuntimeSpec,
  GetServiceRequest,
  HealthCheck,
  HealthHttp,
  HealthTcp,
  RemoveServiceRequest,
  ReplicatedService,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateServiceRequest,
} from "../../proto/gen/messages.ts";
import { deadlineLabel, progressDeadlineLabel } from "../../machines/orchestration/rollout/settings.ts";
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { Look } from "../support/driver-machine.ts";
import { SimClient, type ClientOptions } from "./client.ts";
import { driverKind, wellPort } from "./drivers.ts";
import { Operations, type OperationsOptions } from "./operations.ts";
import { rolloutDeadlineMs } from "./workload-rollout.ts";

export interface HealthWorkloadOptions extends ClientOptions, OperationsOptions {}

const replicasMax = 3;
const labels = { [progressDeadlineLabel]: "40s", [deadlineLabel]: `${rolloutDeadlineMs / 1_000}s` };
const methods = ControlService.methods;
const seconds = (count: number) => Duration.create({ seconds: count });

export class HealthWorkload {
  readonly #options: HealthWorkloadOptions;
  readonly #random: SimRandom;
  readonly #client: SimClient;
  readonly #operations: Operations;
  readonly #services: string[] = [];
  #names = 0;

  constructor(options: HealthWorkloadOptions) {
    this.#options = options;
    this.#random = options.ports.random.fork("workload.health");
    this.#client = new SimClient(options, this.#random);
    this.#operations = new Operations(options, this.#random, this.#client);
  }

  get isDone(): boolean {
    return this.#operations.areDone;
  }

  start(): void {
    this.#operations.start(() => this.#operate(), true);
  }

  async #operate(): Promise<void> {
    const kind = this.#services.length === 0 ? 0 : this.#random.next();
    if (kind < 0.4) await this.#create();
    else if (kind < 0.8) await this.#update(this.#random.pick(this.#services));
    else await this.#remove(this.#random.pick(this.#services));
  }

  async #create(): Promise<void> {
    const name = `h${(this.#names += 1)}`;
    const update = UpdateConfig.create({
      parallelism: 1 + this.#random.below(2),
      monitor: seconds(1 + this.#random.below(3)),
      failureAction: UpdateConfig_FailureAction.ROLLBACK,
    });
    const spec = ServiceSpec.create({
      annotations: Annotations.create({ name, labels }),
      task: this.#task("well"),
      replicated: ReplicatedService.create({ replicas: 1 + this.#random.below(replicasMax) }),
      update,
      rollback: UpdateConfig.create({ parallelism: 0, monitor: seconds(1) }),
    });
    const request = CreateServiceRequest.create({ spec });
    const { service } = await this.#client.call(methods.CreateService, request, `create ${name} with a health check`);
    if (service === null) return;
    this.#services.push(service.id);
    this.#options.trace.mark("checked.created");
  }

  /** The start period is longer than any task needs to become healthy. */
  #task(look: Look): TaskSpec {
    const looks: readonly Partial<HealthCheck>[] = [
      { command: [look] },
      { http: HealthHttp.create({ port: 8080, path: `/${look}` }) },
      { tcp: HealthTcp.create({ port: look === "well" ? wellPort : wellPort + 1 }) },
    ];
    const health = HealthCheck.create({
      ...this.#random.pick(looks),
      interval: seconds(1 + this.#random.below(3)),
      timeout: seconds(1 + this.#random.below(2)),
      retries: 1 + this.#random.below(3),
      startPeriod: look === "well" ? seconds(15) : seconds(1),
      startInterval: seconds(1),
    });
    const value = DriverSpec.encode(DriverSpec.create({ config: "{}", health }));
    const payload = Any.create({ type_url: "sim/muster.v1.DriverSpec", value });
    return TaskSpec.create({
      generic: GenericRuntimeSpec.create({ kind: driverKind, payload }),
      restart: RestartPolicy.create({
        condition: RestartPolicy_RestartCondition.ANY,
        delay: seconds(1),
        // A cluster in which something fails for ever never comes to rest.
        maxAttempts: 4 + this.#random.below(5),
      }),
    });
  }

  async #update(serviceId: string): Promise<void> {
    const { service } = await this.#client.call(
      methods.GetService,
      GetServiceRequest.create({ serviceId }),
      `get ${serviceId}`,
    );
    if (service?.spec == null) return;
    const look = this.#random.pick<Look>(["well", "never"]);
    const spec = ServiceSpec.patch(service.spec, { task: this.#task(look) });
    const request = UpdateServiceRequest.create({ serviceId, serviceVersion: service.meta?.version ?? null, spec });
    await this.#client.call(methods.UpdateService, request, `update ${serviceId} to be ${look}`);
    this.#options.trace.mark(`checked.updated.${look}`);
  }

  async #remove(serviceId: string): Promise<void> {
    const request = RemoveServiceRequest.create({ serviceId });
    await this.#client.call(methods.RemoveService, request, `remove ${serviceId}`);
    this.#services.splice(this.#services.indexOf(serviceId), 1);
  }
}
